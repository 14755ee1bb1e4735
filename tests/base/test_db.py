from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cmserver.base.db import TENANT_ROLE, Db, with_options
from cmserver.base.errors import Unavailable
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn, Query
from tests.conftest import Server

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
        assert (await WHO.one(conn), await NAMES.all(conn)) == (TENANT_ROLE, ["blue"])
    async with db.tenant(RED) as conn:
        assert await NAMES.all(conn) == ["red"]
    async with db.system() as conn:
        assert await WHO.one(conn) != TENANT_ROLE
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

    with pytest.raises(Unavailable, match="too busy"):
        await db.in_tenant(BLUE, always)

    assert tried == 3


@pytest.mark.slow
async def test_a_database_that_cannot_be_reached_is_unavailable(tmp_path: Path):
    async with Db(f"host={tmp_path} dbname=cmserver", size=1) as db:
        with pytest.raises(Unavailable, match="cannot be reached at the moment"):
            async with db.system():
                pass


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
