"""A database that falls silent: no answer, and no end of the connection either. Who waits is told so after a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

import pytest
from psycopg.conninfo import conninfo_to_dict

from cmserver.base import db as db_module
from cmserver.base import notifications
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.ids import new_id
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn
from cmserver.base.timed_connection import TimedConnection, with_time_limits
from tests.conftest import Server
from tests.faults.proxy import Proxy
from tests.timeouts import ENOUGH_SECONDS, Deadline


@pytest.fixture
def proxy(server: Server) -> Generator[Proxy]:
    if server.embedded is None:
        pytest.skip("the proxy needs the socket of a PostgreSQL of our own")
    port = conninfo_to_dict(server.embedded.url)["port"]
    proxy = Proxy(server.embedded.sockets / f".s.PGSQL.{port}", seed=1)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied_url(proxy: Proxy, database: str) -> str:
    return f"postgresql://cmserver@127.0.0.1:{proxy.port}/{conninfo_to_dict(database)['dbname']}"


async def ask(conn: Conn) -> bool:
    await conn.execute("SELECT 1")
    return True


async def ask_until_answered(db: Db) -> None:
    """Connections that nobody has used since are found silent one by one, or replaced together."""
    deadline = Deadline(ENOUGH_SECONDS)
    while True:
        try:
            await db.in_system(ask, answer_seconds=0.3)
        except Unavailable:
            assert not deadline.is_over
        else:
            return


async def test_a_transaction_of_the_owner_gives_a_silent_connection_up_and_the_next_ones_work(proxy: Proxy, proxied_url: str):
    async with Db(proxied_url, size=3, answer_seconds=0.3) as db:
        await db.in_system(ask)

        proxy.silence()

        with pytest.raises(Unavailable):
            await db.in_system(ask)
        await ask_until_answered(db)
        proxy.cut()


async def test_a_request_gives_a_silent_connection_up_soon_after_its_time_limit(
    proxy: Proxy, proxied_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(db_module, "_SILENCE_SECONDS", -59.5)  # half a second, while the statement itself has a minute
    async with Db(proxied_url, size=3, statement_timeout_seconds=60) as db:
        await db.in_tenant(new_id(), ask)

        proxy.silence()

        with pytest.raises(Unavailable):
            await db.in_tenant(new_id(), ask)
        await ask_until_answered(db)
        proxy.cut()


async def test_so_does_a_single_statement_of_a_request(proxy: Proxy, proxied_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(db_module, "_SILENCE_SECONDS", -59.5)
    async with Db(proxied_url, size=3, statement_timeout_seconds=60) as db:
        await db.in_tenant(new_id(), ask)

        proxy.silence()

        with pytest.raises(Unavailable):
            await db.statement_in_tenant(ask)
        proxy.cut()


async def test_what_may_take_hours_has_no_limit(proxy: Proxy, proxied_url: str):
    async def sleep(conn: Conn) -> bool:
        await conn.execute("SELECT pg_sleep(0.5)")
        return True

    async with Db(proxied_url, size=1, answer_seconds=0.1) as db:
        assert await db.in_system(sleep, answer_seconds=float("inf"))
        with pytest.raises(Unavailable):
            await db.in_system(sleep)


async def test_a_session_of_its_own_breaks_when_the_database_falls_silent(proxy: Proxy, proxied_url: str):
    async def ask_in_silence(db: Db) -> None:
        async with db.own_session() as conn:
            await ask(conn)
            proxy.silence()
            await asyncio.wait_for(ask(conn), ENOUGH_SECONDS)

    async with Db(proxied_url, size=1, answer_seconds=0.5) as db:
        with pytest.raises(Unavailable):
            await ask_in_silence(db)


def test_connecting_and_the_silence_of_the_host_are_limited_unless_the_url_says_otherwise():
    limits = conninfo_to_dict(with_time_limits("postgresql://db/x"))
    own = conninfo_to_dict(with_time_limits("postgresql://db/x?connect_timeout=3&tcp_user_timeout=0"))

    assert (limits["connect_timeout"], limits["tcp_user_timeout"], limits["keepalives_idle"]) == ("10", "5000", "5")
    assert (own["connect_timeout"], own["tcp_user_timeout"], own["keepalives_idle"]) == ("3", "0", "5")


async def test_an_answer_that_came_while_this_process_stood_still_is_taken(database: str):
    async with await TimedConnection.connect(database, autocommit=True) as conn:
        conn.answer_seconds = 0.1
        answer = asyncio.create_task(conn.execute("SELECT 7"))
        await asyncio.sleep(0.01)

        time.sleep(0.5)  # noqa: ASYNC251 - the process is frozen, and PostgreSQL is not

        assert await (await answer).fetchone() == (7,)
        assert not conn.closed


async def test_a_listener_notices_that_its_connection_is_silent_and_comes_back(
    proxy: Proxy, proxied_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(notifications, "_QUIET_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(notifications, "_ANSWER_SECONDS", 0.3)
    listener = NotificationListener(proxied_url)
    returns: asyncio.Queue[str] = asyncio.Queue()
    listener.subscribe("cmserver_a", returns.put_nowait)
    listening = asyncio.create_task(listener.listen(["cmserver_a"]))
    assert await asyncio.wait_for(returns.get(), ENOUGH_SECONDS) == ""

    proxy.silence()

    assert await asyncio.wait_for(returns.get(), ENOUGH_SECONDS) == "", "it has missed something, perhaps, and says so"
    listening.cancel()
