"""The bell rings after the commit: here at once, elsewhere soon, and seldom enough."""

from __future__ import annotations

import asyncio

import pytest

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.notifications import NotificationListener
from cmserver.generation.job_notifier import CHANNELS, DONE, JOBS, JobNotifier
from tests.timeouts import ENOUGH_SECONDS


async def test_a_ring_is_heard_in_this_process_before_ring_returns(db: Db):
    listener = NotificationListener(db.url)
    rings: list[str] = []
    listener.subscribe(JOBS, rings.append)

    JobNotifier(db, listener).notify_due()

    assert rings == [""]


async def test_a_hundred_rings_at_once_are_at_most_two_notifications_elsewhere(db: Db, monkeypatch: pytest.MonkeyPatch):
    elsewhere = NotificationListener(db.url)
    payloads: asyncio.Queue[str] = asyncio.Queue()
    elsewhere.subscribe(JOBS, payloads.put_nowait)
    elsewhere.subscribe(DONE, payloads.put_nowait)
    listening = asyncio.create_task(elsewhere.listen(CHANNELS))
    assert await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS) == ""
    assert await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS) == ""
    notifier = JobNotifier(db, NotificationListener(db.url))

    with monkeypatch.context() as meanwhile:
        now = asyncio.get_running_loop().time()
        meanwhile.setattr(asyncio.get_running_loop(), "time", lambda: now)
        for _ in range(100):
            notifier.notify_due()

    payload = await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS)
    assert notifier.is_own(payload)
    assert not JobNotifier(db, elsewhere).is_own(payload)
    lanes = {new_id() for _ in range(150)}
    for lane in lanes:
        notifier.notify_ended(lane)
    ended: list[str] = []
    while len(set(ended) - {payload}) < len(lanes):
        ended += (await asyncio.wait_for(payloads.get(), ENOUGH_SECONDS)).split()
    listening.cancel()
    assert set(ended) - {payload} == {str(lane) for lane in lanes}
    assert ended.count(payload) <= 1


async def test_a_ring_for_later_is_heard_when_the_work_is_due(db: Db):
    listener = NotificationListener(db.url)
    rung = asyncio.Event()
    listener.subscribe(JOBS, lambda _: rung.set())

    JobNotifier(db, listener).notify_due(after_seconds=0.05)

    assert not rung.is_set()
    await asyncio.wait_for(rung.wait(), ENOUGH_SECONDS)


async def test_what_is_due_at_about_the_same_time_is_announced_once(db: Db, monkeypatch: pytest.MonkeyPatch):
    listener = NotificationListener(db.url)
    notifier = JobNotifier(db, listener)
    loop = asyncio.get_running_loop()
    planned: list[float] = []

    def plan(when: float, *_: object) -> None:
        planned.append(when)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(loop, "call_at", plan)
        start = loop.time()
        for place in range(100):
            moment = start + place / 1000
            meanwhile.setattr(loop, "time", lambda moment=moment: moment)
            notifier.notify_due(after_seconds=2)

    assert len(planned) in {1, 2}
    assert all(start + 2 <= when <= start + 2.2 for when in planned)
