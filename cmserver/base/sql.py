"""Queries: SQL text with the type of a row. Repositories hold them as constants; tests PREPARE each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, TypeVar, cast

import msgspec
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow, scalar_row
from psycopg.types.json import Jsonb, set_json_dumps, set_json_loads

from cmserver.base.errors import NotFound

Row = TypeVar("Row")
Conn = AsyncConnection[TupleRow]
"""A connection inside the caller's transaction. Functions that take one must not use the network otherwise."""

set_json_dumps(msgspec.json.Encoder().encode)
set_json_loads(msgspec.json.decode)

__all__ = ["Conn", "Jsonb", "Query"]


@dataclass(frozen=True, slots=True)
class Query(Generic[Row]):
    """SQL with named parameters, and what one row of its answer is: a Struct, or the type of its single column."""

    row: type[Row]
    text: LiteralString
    prepare: bool | None = None
    """False where the plan must be made for each call's parameters; None lets psycopg prepare what is used often."""

    async def all(self, conn: Conn, **params: object) -> list[Row]:
        """Every row."""
        async with conn.cursor(row_factory=_rows_of(self.row)) as cursor:
            await cursor.execute(self.text, params, prepare=self.prepare)
            return await cursor.fetchall()

    async def first(self, conn: Conn, **params: object) -> Row | None:
        """The first row, or None."""
        async with conn.cursor(row_factory=_rows_of(self.row)) as cursor:
            await cursor.execute(self.text, params, prepare=self.prepare)
            return await cursor.fetchone()

    async def one(self, conn: Conn, **params: object) -> Row:
        """The one row; NotFound when it was deleted since the request looked for it."""
        row = await self.first(conn, **params)
        if row is None:
            raise NotFound("Not found: it was deleted meanwhile.")
        return row

    async def run(self, conn: Conn, **params: object) -> int:
        """Execute it; returns the number of rows that it wrote."""
        cursor = await conn.execute(self.text, params, prepare=self.prepare)
        return cursor.rowcount


def _rows_of(row: type[Row]) -> Callable[[AsyncCursor[Any]], Callable[[Sequence[Any]], Row]]:
    """A row factory of psycopg: Structs by the names of columns, or the values of the single column."""
    if not issubclass(row, msgspec.Struct):
        return cast("Callable[[AsyncCursor[Any]], Callable[[Sequence[Any]], Row]]", scalar_row)

    def factory(cursor: AsyncCursor[Any]) -> Callable[[Sequence[Any]], Row]:
        # Not cursor.description, which also looks up the types of columns.
        result = cursor.pgresult
        names = [(result.fname(place) or b"").decode() for place in range(result.nfields)] if result else []

        def make(values: Sequence[Any]) -> Row:
            return msgspec.convert(dict(zip(names, values, strict=True)), row)

        return make

    return factory
