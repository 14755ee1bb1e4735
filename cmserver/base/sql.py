"""Queries: SQL text with the type of a row. In repositories a query is a function (`@query`), or a constant where one text
serves several functions; tests PREPARE each.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, KeysView, Sequence, ValuesView
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from inspect import Parameter, signature
from types import NoneType
from typing import Any, Generic, Literal, LiteralString, NewType, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow, scalar_row
from psycopg.types.json import Jsonb, set_json_dumps, set_json_loads

from cmserver.base.errors import NotFound

Row = TypeVar("Row")
P = ParamSpec("P")
Answer = TypeVar("Answer")
RowCount = NewType("RowCount", int)
"""How many rows a query wrote: what a function of `@query` returns then."""
Conn = AsyncConnection[TupleRow]
"""A connection inside the caller's transaction. Functions that take one must not use the network otherwise."""

set_json_dumps(msgspec.json.Encoder().encode)
set_json_loads(msgspec.json.decode)

__all__ = ["Conn", "Jsonb", "Query", "QueryFunction", "RowCount", "query", "unprepared_query"]


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


class QueryFunction(Generic[P, Answer]):
    """A function that is a query: see `query`."""

    def __init__(self, function: Callable[P, Coroutine[Any, Any, Answer]], text: LiteralString, prepare: bool | None) -> None:
        update_wrapper(self, function)
        parameters = list(signature(function).parameters.values())[1:]
        self._function = function
        self._text: LiteralString = text
        self._prepare = prepare
        self._names = [one.name for one in parameters]
        self._defaults = {one.name: one.default for one in parameters if one.default is not Parameter.empty}

    @cached_property
    def query(self) -> Query[Any]:
        """The SQL, with the row that the function's annotation names."""
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[Query[Any], Literal["all", "first", "one", "run"]]:
        answer: Any = get_type_hints(self._function)["return"]
        if answer is NoneType or answer is RowCount:
            return Query(object, self._text, self._prepare), "run"
        if get_origin(answer) is list:
            return Query(_class_of(get_args(answer)[0]), self._text, self._prepare), "all"
        rows = [one for one in get_args(answer) if one is not NoneType]
        return Query(_class_of(rows[0] if rows else answer), self._text, self._prepare), "first" if rows else "one"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Answer]:
        conn, *values = args
        given: dict[str, Any] = self._defaults | dict(zip(self._names, values, strict=False)) | kwargs
        params = {name: _sent(value) for name, value in given.items()}
        query, how = self._read
        return getattr(query, how)(conn, **params)


_SENT_AS_ARRAY: tuple[type[Any], ...] = (set, frozenset, tuple, dict, KeysView, ValuesView)


def _sent(value: Any) -> object:
    return list(value) if isinstance(value, _SENT_AS_ARRAY) else value


def _class_of(row: Any) -> type[Any]:
    return get_origin(row) or row


def query(text: LiteralString) -> Callable[[Callable[P, Coroutine[Any, Any, Answer]]], QueryFunction[P, Answer]]:
    """The function below is this SQL. Behind the connection its parameters have the names of the text's; collections are sent as
    arrays. Its annotation says how the answer is read: `list[Row]` is every row, `Row | None` the first, `Row` the one (NotFound
    when it was deleted meanwhile), `RowCount` how many were written, and None nothing.
    """
    return lambda function: QueryFunction(function, text, None)


def unprepared_query(text: LiteralString) -> Callable[[Callable[P, Coroutine[Any, Any, Answer]]], QueryFunction[P, Answer]]:
    """As `query`, where the plan must be made for each call's parameters."""
    return lambda function: QueryFunction(function, text, False)
