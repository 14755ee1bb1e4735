from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from uuid import UUID

import msgspec
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cmserver.base import tenant_role
from cmserver.base.db import DatabaseUrls, Db, Pooling, PoolTimeouts, prepare_tenant, with_options
from cmserver.base.errors import DatabaseExhausted, StatementTimeout, Unavailable
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn, Query
from cmserver.base.tenant_role import REQUEST_ROLE, TENANT_ROLE, TENANT_SETTINGS, UnsafeConnection
from tests.conftest import Server
from tests.timeouts import ENOUGH_SECONDS, Deadline, scaled

BLUE, RED = new_id(), new_id()

WHO = Query(str, "SELECT current_user::text")
TEAM = Query(str, "SELECT coalesce(current_setting('cmserver.team_id', true), 'unset')")
NAMES = Query(str, "SELECT name FROM teams ORDER BY name")
INSERT = Query(int, "INSERT INTO teams (id, name) VALUES (%(id)s, %(name)s)")
RENAME = Query(int, "UPDATE teams SET name = name || %(more)s WHERE id = %(id)s")


@pytest.fixture
async def teams(db: Db) -> None:
    async with db.system() as conn:
        await INSERT.run(conn, id=BLUE, name="blue")
        await INSERT.run(conn, id=RED, name="red")


async def test_a_tenant_sees_its_team_and_the_owner_sees_all(db: Db, teams: None):
    async with db.tenant(BLUE) as conn:
        assert await WHO.one(conn) in {REQUEST_ROLE, TENANT_ROLE}
        assert await NAMES.all(conn) == ["blue"]
    async with db.tenant(RED) as conn:
        assert await NAMES.all(conn) == ["red"]
    async with db.system() as conn:
        assert await WHO.one(conn) not in {REQUEST_ROLE, TENANT_ROLE}
        assert await NAMES.all(conn) == ["blue", "red"]


async def test_the_team_is_set_within_the_transaction_only(database: str, teams: None):
    async with Db(database, size=1) as db:
        async with db.tenant(BLUE) as conn:
            assert await TEAM.one(conn) == str(BLUE)

        # the only connection of the pool, so the same one
        left = await db.statement_in_tenant(TEAM.one)
        seen = await db.statement_in_tenant(NAMES.all)

    assert left == ""
    assert seen == []


async def test_what_fails_inside_is_undone(db: Db, teams: None):
    async def rename_and_fail(conn: Conn) -> None:
        await RENAME.run(conn, id=BLUE, more="!")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await db.in_system(rename_and_fail)

    async with db.system() as conn:
        assert await NAMES.all(conn) == ["blue", "red"]


async def test_a_single_statement_is_committed_at_once(db: Db, teams: None):
    async with db.system_statement() as conn, db.system() as other:
        await RENAME.run(conn, id=BLUE, more="!")

        assert await NAMES.all(other) == ["blue!", "red"]

    async with db.system() as conn:
        assert await NAMES.all(conn) == ["blue!", "red"]


async def test_two_that_lock_each_other_out_both_succeed_in_the_end(db: Db, teams: None):
    """PostgreSQL ends one of the two; `in_system` begins it anew."""
    both_hold = asyncio.Barrier(2)
    begun: list[str] = []

    async def rename(conn: Conn, first: UUID, second: UUID, more: str) -> None:
        begun.append(more)
        await RENAME.run(conn, id=first, more=more)
        if len(begun) <= 2:
            await both_hold.wait()
        await RENAME.run(conn, id=second, more=more)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(db.in_system(lambda conn: rename(conn, BLUE, RED, "+")))
        group.create_task(db.in_system(lambda conn: rename(conn, RED, BLUE, "-")))

    assert len(begun) == 3
    async with db.system() as conn:
        assert sorted(sorted(name) for name in await NAMES.all(conn)) == [sorted("blue+-"), sorted("red+-")]


async def test_rows_that_stay_contended_are_unavailable_and_not_an_error_of_the_database(db: Db):
    tried = 0

    async def always(_conn: Conn) -> None:
        nonlocal tried
        tried += 1
        raise psycopg.errors.DeadlockDetected

    with pytest.raises(Unavailable):
        await db.in_tenant(BLUE, always)

    assert tried == 3


@pytest.mark.slow
async def test_a_database_that_cannot_be_reached_is_unavailable(tmp_path: Path):
    async with Db(f"host={tmp_path} dbname=cmserver", size=1) as db:
        with pytest.raises(Unavailable, match="cannot be reached"):
            async with db.system():
                pass


async def test_a_statement_that_no_stack_can_hold_is_an_error_of_ours_and_not_a_database_that_is_away(db: Db, teams: None):
    deep = Query(object, "SELECT (repeat('[', 20000) || repeat(']', 20000))::jsonb")

    for transaction in (db.tenant(BLUE), db.system(), db.own_session()):
        with pytest.raises(psycopg.errors.StatementTooComplex):
            async with transaction as conn:
                await deep.one(conn)


async def test_a_connection_that_breaks_in_the_middle_is_unavailable_and_the_next_one_works(db: Db, database: str):
    async def break_it(conn: Conn) -> None:
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [conn.info.backend_pid])
        await WHO.one(conn)

    with pytest.raises(Unavailable):
        await db.in_system(break_it)

    async with asyncio.timeout(20), db.system() as conn:
        assert await WHO.one(conn)


async def test_after_it_is_closed_it_is_unavailable(database: str):
    async with Db(database, size=1) as db:
        pass

    with pytest.raises(Unavailable):
        async with db.tenant(BLUE):
            pass


def test_options_of_the_url_are_kept():
    url = "postgresql://alice@db.example/memory?options=-c%20statement_timeout%3D5s&sslmode=require"

    told = conninfo_to_dict(with_options(url, "-c role=cmserver_tenant"))

    assert told["options"] == "-c statement_timeout=5s -c role=cmserver_tenant"
    assert (told["host"], told["user"], told["sslmode"]) == ("db.example", "alice", "require")
    assert told["application_name"] == "cmserver"


async def test_options_of_the_url_are_in_force_for_tenant_and_owner(server: Server, database: str):
    setting = Query(str, "SELECT current_setting('statement_timeout')")

    async with Db(with_options(database, "-c statement_timeout=4321"), size=1) as db:
        async with db.tenant(BLUE) as conn:
            assert await setting.one(conn) == "4321ms"
        async with db.system() as conn:
            assert await setting.one(conn) == "4321ms"


# ---- the role of requests


async def test_a_login_that_no_policy_binds_opens_no_tenant_transaction(database: str, teams: None):
    urls = DatabaseUrls(owner=database, tenant=database)

    with pytest.raises(UnsafeConnection):
        await prepare_tenant(urls)
    async with Db(urls, size=1) as db:
        with pytest.raises(Unavailable, match="would not be kept apart"):
            async with db.tenant(BLUE):
                pass


async def test_each_transaction_of_a_tenant_looks_whether_a_policy_binds_it(
    database: str, teams: None, monkeypatch: pytest.MonkeyPatch
):
    """As when a pooler answers the look at a new connection from one of its own, and the transaction from another."""
    monkeypatch.setattr(tenant_role, "check_tenant_role", _anything_goes)

    async with Db(DatabaseUrls(owner=database, tenant=database), size=1) as db:
        with pytest.raises(Unavailable, match="does not bind"):
            async with db.tenant(BLUE):
                pass


async def _anything_goes(_conn: Conn) -> None:
    pass


async def test_the_login_for_requests_keeps_its_settings_by_itself(server: Server, database: str):
    urls = server.urls_of(database)
    if urls.tenant is None:
        pytest.skip("needs a login for requests, which only the server that the tests start has")

    await prepare_tenant(urls)
    await asyncio.gather(*(prepare_tenant(urls) for _ in range(4)))

    with psycopg.connect(urls.tenant) as conn:
        assert conn.execute("SELECT current_user::text, current_setting('jit')").fetchone() == (REQUEST_ROLE, "off")
        (settings,) = conn.execute("SELECT rolconfig FROM pg_roles WHERE rolname = current_user").fetchone() or ((),)
    assert sorted(settings) == sorted(f"{name}={value}" for name, value in TENANT_SETTINGS.items())


@pytest.mark.parametrize("pooling", ["none", "session", "transaction"])
async def test_the_time_limit_of_an_idle_transaction_holds_in_every_mode(server: Server, database: str, pooling: Pooling):
    limit = Query(str, "SELECT current_setting('idle_in_transaction_session_timeout')")
    urls = msgspec.structs.replace(server.urls_of(database), direct=database, pooling=pooling)

    async with Db(urls, size=1, idle_in_transaction_seconds=3) as db, db.system() as conn:
        assert await limit.one(conn) == "3s"


async def test_behind_a_transaction_pooler_nothing_is_prepared_and_sessions_are_others(server: Server, database: str):
    prepared = Query(int, "SELECT count(*) FROM pg_prepared_statements", prepare=True)
    urls = msgspec.structs.replace(server.urls_of(database), direct=database, pooling="transaction")

    async with Db(urls, size=1) as db, db.system_statement() as conn, db.owner_session() as session:
        for _ in range(8):
            assert await prepared.one(conn) == 0
        await prepared.one(session)
        assert await prepared.one(session) == 1
        assert session.info.backend_pid != conn.info.backend_pid


def test_urls_do_not_show_their_passwords():
    assert "hunter2" not in repr(DatabaseUrls(owner="postgresql://a:hunter2@b/c", tenant="postgresql://d:hunter2@b/c"))


# ---- the time limit of statements

TIMEOUT = Query(str, "SELECT current_setting('statement_timeout')")
SLEEP = Query(int, "SELECT count(*) FROM (SELECT pg_sleep(30)) AS slept")


@pytest.mark.parametrize("pooling", ["none", "session", "transaction"])
async def test_the_time_limit_of_a_request_holds_in_every_mode_and_for_requests_only(
    server: Server, database: str, teams: None, pooling: Pooling
):
    urls = msgspec.structs.replace(server.urls_of(database), direct=database, pooling=pooling)

    async with Db(urls, size=1, statement_timeout_seconds=4) as db:
        async with db.tenant(BLUE) as conn:
            assert await TIMEOUT.one(conn) == "4s"
        async with db.tenant(BLUE, has_time_limit=False) as conn:
            assert await TIMEOUT.one(conn) == "0"
        single = await db.statement_in_tenant(TIMEOUT.one)
        async with db.system() as conn:
            owner = await TIMEOUT.one(conn)

    assert single == ("0" if pooling == "transaction" else "4s")
    assert owner == "0"


async def test_a_statement_of_a_request_that_runs_too_long_is_ended_and_the_connection_goes_on(
    server: Server, database: str, teams: None
):
    async with Db(server.urls_of(database), size=1, statement_timeout_seconds=scaled(0.3)) as db:
        with pytest.raises(StatementTimeout, match="CMSERVER_STATEMENT_TIMEOUT_SECONDS"):
            await db.in_tenant(BLUE, SLEEP.one)
        assert await db.in_tenant(BLUE, NAMES.all) == ["blue"]


async def test_the_pools_wait_and_keep_connections_for_as_long_as_is_set(server: Server, database: str, teams: None):
    timeouts = PoolTimeouts(wait_seconds=scaled(0.3), idle_seconds=7)
    async with Db(server.urls_of(database), size=1, timeouts=timeouts) as db:
        assert (db.session_pool.timeout, db.session_pool.max_idle) == (timeouts.wait_seconds, 7)
        async with db.tenant(BLUE):
            with pytest.raises(Unavailable):
                await db.in_tenant(BLUE, NAMES.all)


@pytest.fixture
def read_only(server: Server, database: str) -> Generator[Callable[[], None]]:
    """New connections to the database may only read, until what is returned is called."""
    name = str(conninfo_to_dict(database)["dbname"])
    with psycopg.connect(server.superuser_url(name), autocommit=True) as superuser:
        superuser.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(name)))
        write = sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(sql.Identifier(name))
        yield lambda: superuser.execute(write) and None
        superuser.execute(write)


async def test_connections_to_a_primary_that_became_a_standby_are_left(database: str, teams: None, read_only: Callable[[], None]):
    """It keeps them open, and answers each write with an error; new ones may lead to the new primary."""
    async with Db(database, size=1) as db:
        async with db.system() as conn:
            assert await NAMES.all(conn) == ["blue", "red"]
        read_only()
        with pytest.raises(DatabaseExhausted):
            await db.in_system(rename_red)

        deadline = Deadline(ENOUGH_SECONDS)
        while not deadline.is_over:
            try:
                await db.in_system(rename_red)
                break
            except DatabaseExhausted:
                await asyncio.sleep(0.01)
        async with db.system() as conn:
            assert await NAMES.all(conn) == ["blue", "red2"]


async def test_connections_to_a_database_that_stays_read_only_are_left_once(
    database: str, teams: None, read_only: Callable[[], None]
):
    async with Db(database, size=1) as db:
        for _ in range(20):
            with pytest.raises(DatabaseExhausted):
                await db.in_system(rename_red)

        assert 2 <= db.pool_stats()["owner"]["connections_num"] <= 5


async def rename_red(conn: Conn) -> None:
    await RENAME.run(conn, id=RED, more="2")
