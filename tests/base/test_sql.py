from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import msgspec
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.sql import Jsonb, Query


class Note(msgspec.Struct, frozen=True):
    text: str
    number: int = 7


class Row(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    kind: Literal["a", "b"]
    note: Note
    tags: list[str]
    at: datetime
    nothing: int | None


ROW = Query(
    Row,
    """
    SELECT %(id)s::uuid AS id, %(kind)s::text AS kind, %(note)s::jsonb AS note, %(tags)s::text[] AS tags, %(at)s::timestamptz AS at,
           NULL::int AS nothing
    """,
)
NUMBERS = Query(int, "SELECT n FROM generate_series(1, %(most)s) n")
TEAM = UUID(int=1)


async def test_a_row_becomes_its_struct_and_jsonb_the_structs_inside(db: Db):
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    async with db.tenant(TEAM) as conn:
        row = await ROW.one(conn, id=TEAM, kind="b", note=Jsonb(Note("hello")), tags=["x", "y"], at=at)

    assert row == Row(id=TEAM, kind="b", note=Note("hello"), tags=["x", "y"], at=at, nothing=None)


async def test_a_value_that_the_struct_does_not_know_is_an_error(db: Db):
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'c'"):
        async with db.tenant(TEAM) as conn:
            await ROW.one(conn, id=TEAM, kind="c", note=Jsonb(Note("hello")), tags=[], at=datetime.now(UTC))


async def test_a_single_column_is_its_value(db: Db):
    async with db.tenant(TEAM) as conn:
        assert await NUMBERS.all(conn, most=3) == [1, 2, 3]
        assert await NUMBERS.first(conn, most=3) == 1
        assert await NUMBERS.one(conn, most=3) == 1


async def test_without_a_row_all_is_empty_first_is_none_and_one_is_not_found(db: Db):
    async with db.tenant(TEAM) as conn:
        assert await NUMBERS.all(conn, most=0) == []
        assert await NUMBERS.first(conn, most=0) is None
        with pytest.raises(NotFound):
            await NUMBERS.one(conn, most=0)


async def test_run_says_how_many_rows_it_touched(db: Db):
    insert = Query(int, "INSERT INTO teams (id, name) SELECT gen_random_uuid(), n::text FROM generate_series(1, 3) n")
    async with db.system() as conn:
        assert await insert.run(conn) == 3


async def test_a_parameter_that_is_not_given_is_an_error(db: Db):
    with pytest.raises(psycopg.ProgrammingError, match="most"):
        async with db.tenant(TEAM) as conn:
            await NUMBERS.all(conn)
