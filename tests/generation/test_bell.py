"""The bell rings after the commit: here at once, elsewhere soon, and seldom enough."""

from __future__ import annotations

import asyncio

import pytest

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.live import Hub
from cmserver.generation.bell import CHANNELS, DONE, JOBS, Bell

ENOUGH_SECONDS = 15


async def test_a_ring_is_heard_in_this_process_before_ring_returns(db: Db):
    hub = Hub(db.url)
    rings: list[str] = []
    hub.on(JOBS, rings.append)

    Bell(db, hub).ring()

    assert rings == [""]


async def test_a_hundred_rings_at_once_are_at_most_two_notifications_elsewhere(db: Db, monkeypatch: pytest.MonkeyPatch):
    elsewhere = Hub(db.url)
    heard: asyncio.Queue[str] = asyncio.Queue()
    elsewhere.on(JOBS, heard.put_nowait)
    elsewhere.on(DONE, heard.put_nowait)
    listening = asyncio.create_task(elsewhere.listen(CHANNELS))
    assert await asyncio.wait_for(heard.get(), ENOUGH_SECONDS) == ""
    assert await asyncio.wait_for(heard.get(), ENOUGH_SECONDS) == ""
    bell = Bell(db, Hub(db.url))

    with monkeypatch.context() as meanwhile:
        now = asyncio.get_running_loop().time()
        meanwhile.setattr(asyncio.get_running_loop(), "time", lambda: now)
        for _ in range(100):
            bell.ring()

    payload = await asyncio.wait_for(heard.get(), ENOUGH_SECONDS)
    assert bell.is_mine(payload)
    assert not Bell(db, elsewhere).is_mine(payload)
    lanes = {new_id() for _ in range(150)}
    for lane in lanes:
        bell.done(lane)
    told: list[str] = []
    while len(set(told) - {payload}) < len(lanes):
        told += (await asyncio.wait_for(heard.get(), ENOUGH_SECONDS)).split()
    listening.cancel()
    assert set(told) - {payload} == {str(lane) for lane in lanes}
    assert told.count(payload) <= 1


async def test_a_ring_for_later_is_heard_when_the_work_is_due(db: Db):
    hub = Hub(db.url)
    rung = asyncio.Event()
    hub.on(JOBS, lambda _: rung.set())

    Bell(db, hub).ring(after_seconds=0.05)

    assert not rung.is_set()
    await asyncio.wait_for(rung.wait(), ENOUGH_SECONDS)
