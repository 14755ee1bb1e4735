"""The hub: one LISTEN connection, however many listeners, and it comes back by itself."""

from __future__ import annotations

import asyncio

from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from tests.timeouts import ENOUGH_SECONDS


async def test_a_notification_reaches_every_listener_of_its_channel(db: Db):
    hub = NotificationListener(db.url)
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    hub.subscribe("cmserver_a", lambda payload: heard.put_nowait(("first", payload)))
    hub.subscribe("cmserver_a", lambda payload: heard.put_nowait(("second", payload)))
    hub.subscribe("cmserver_b", lambda payload: heard.put_nowait(("other", payload)))
    listening = asyncio.create_task(hub.listen(["cmserver_a"]))
    await asyncio.wait_for(hub.listening.wait(), ENOUGH_SECONDS)
    while not heard.empty():
        heard.get_nowait()  # told that anything may have happened before

    async with db.system_statement() as conn:
        await conn.execute("SELECT pg_notify('cmserver_a', 'hello')")

    got = {await asyncio.wait_for(heard.get(), ENOUGH_SECONDS) for _ in range(2)}
    listening.cancel()
    assert got == {("first", "hello"), ("second", "hello")}


async def test_after_a_lost_connection_listeners_are_told_that_they_may_have_missed_something(db: Db):
    hub = NotificationListener(db.url)
    heard: asyncio.Queue[str] = asyncio.Queue()
    hub.subscribe("cmserver_a", heard.put_nowait)
    listening = asyncio.create_task(hub.listen(["cmserver_a"]))
    assert await asyncio.wait_for(heard.get(), ENOUGH_SECONDS) == ""

    async with db.system_statement() as conn:
        await conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
        )

    assert await asyncio.wait_for(heard.get(), ENOUGH_SECONDS) == ""
    async with db.system_statement() as conn:
        await conn.execute("SELECT pg_notify('cmserver_a', 'again')")
    assert await asyncio.wait_for(heard.get(), ENOUGH_SECONDS) == "again"
    listening.cancel()


async def test_a_listener_that_breaks_does_not_make_the_others_deaf(db: Db):
    hub = NotificationListener(db.url)
    heard: list[str] = []

    def broken(_payload: str) -> None:
        raise ZeroDivisionError

    hub.subscribe("cmserver_a", broken)
    stop_hearing = hub.subscribe("cmserver_a", heard.append)

    hub.deliver("cmserver_a", "one")
    stop_hearing()
    hub.deliver("cmserver_a", "two")

    assert heard == ["one"]
