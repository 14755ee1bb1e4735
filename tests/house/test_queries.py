"""Every query PREPAREs on the migrated database, and says the truth about what one row of its answer is."""

from __future__ import annotations

import ast
import re
import types
import typing
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import msgspec
import psycopg
import pytest
from psycopg.pq import ExecStatus

from cmserver.base.sql import Query
from tests.conftest import Server
from tests.house.house import has_vectors, needs_vectors, queries, sources
from tests.house.test_tenancy import ROWS

PARAMETER = re.compile(r"%\((\w+)\)s")
PYTHON: dict[str, type] = {
    "uuid": UUID,
    "text": str,
    "varchar": str,
    "bpchar": str,
    "name": str,
    "tsvector": str,
    "int2": int,
    "int4": int,
    "int8": int,
    "oid": int,
    "float4": float,
    "float8": float,
    "numeric": Decimal,
    "bool": bool,
    "bytea": bytes,
    "date": date,
    "timestamptz": datetime,
    "interval": timedelta,
}

NEVER_NULL = {
    "cmserver.generation.repository.CLAIM: claim": "the statement has just set it",
    "cmserver.observations.lifetime.repository.EXTEND: old_ttl_seconds": "what expires has a lifetime (expires_with_a_lifetime)",
    "cmserver.observations.lifetime.repository.EXTEND: old_expires_at": "its WHERE leaves NULLs out",
    "cmserver.observations.repository.failures: state": "its WHERE leaves NULLs out",
    "cmserver.models.calls.repository.stored_answers: answer": "its WHERE leaves NULLs out",
    "cmserver.consolidation.repository.merges: strategy": "a version that is a merge has one",
    "cmserver.graph.overviews.repository.of_project: body": "its WHERE leaves NULLs out",
    "cmserver.graph.overviews.repository.of_project: made_at": "a page with a body was made (a CHECK)",
    **{
        f"cmserver.graph.overviews.repository.{name}": "as of of_project"
        for name in ("by_id: body", "by_id: made_at", "change: body", "change: made_at")
    },
    "cmserver.ops.proof.repository.count_sessions: arm": "its WHERE leaves NULLs out",
    "cmserver.ops.proof.repository.measure: arm": "its WHERE leaves NULLs out",
    "cmserver.sessions.turns.repository.replies_before: reply": "its WHERE leaves NULLs out",
    "cmserver.sessions.turns.repository.prompts: prompt_number": "its WHERE leaves NULLs out",
    "cmserver.graph.overviews.repository.KEEP: body": "the statement has just set it",
    "cmserver.graph.overviews.repository.KEEP: made_at": "the statement has just set it",
    **{
        f"cmserver.recall.search.repository.NEAREST{name}: id": "its WHERE or its join leaves NULLs out"
        for name in (
            "_FILTERED",
            "_FILTERED_BY_INDEX",
            *(f"_TURNS{kind}" for kind in ("_FILTERED", "_BY_INDEX", "_FILTERED_BY_INDEX")),
        )
    },
    "cmserver.generation.leases.repository.claims_to_abort: claim": "a job that is processing has one (locked_while_processing)",
}
"""Columns that may be NULL, but never in this query."""


def complaints(conn: psycopg.Connection, query: Query[typing.Any]) -> Iterator[str]:
    """What is wrong with the query, in sentences."""
    names = list(dict.fromkeys(PARAMETER.findall(query.text)))
    text = PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", query.text).replace("%%", "%")
    prepared = conn.pgconn.prepare(b"it", text.encode())
    if prepared.status == ExecStatus.FATAL_ERROR:
        yield prepared.error_message.decode().strip()
        return
    described = conn.pgconn.describe_prepared(b"it")
    conn.execute("DEALLOCATE it")
    columns = {
        (described.fname(i) or b"").decode(): Column(conn, described.ftype(i), described.ftable(i), described.ftablecol(i))
        for i in range(described.nfields)
    }
    yield from _about_columns(query.row, columns)


class Column:
    def __init__(self, conn: psycopg.Connection, type_: int, table: int, place: int) -> None:
        self.type: str = _value(conn, "SELECT typname FROM pg_type WHERE oid = %s", type_)
        # Only a table's own column is known to be NULL or not; an expression's, a function's or a view's is not. What comes from
        # the outer side of a join may be NULL all the same: there a non-null field may be right or wrong, and we believe it.
        self.may_be_null: bool = _value(
            conn,
            "SELECT EXISTS (SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
            "WHERE c.oid = %s AND c.relkind = 'r' AND a.attnum = %s AND NOT a.attnotnull)",
            table,
            place,
        )


def _value(conn: psycopg.Connection, query: typing.LiteralString, *params: object) -> typing.Any:
    row = conn.execute(query, params).fetchone()
    assert row is not None
    return row[0]


def _about_columns(row: type[object], columns: dict[str, Column]) -> Iterator[str]:
    if row is object:  # nobody reads it
        return
    if not columns:  # an INSERT, UPDATE or DELETE that returns nothing
        if row is not int:
            yield f"it returns no rows; then its row type is int, not {row.__name__}"
        return
    if issubclass(row, msgspec.Struct):
        fields: dict[str, typing.Any] = typing.get_type_hints(row, include_extras=True)
        needed = {field.name for field in msgspec.structs.fields(row) if field.required}
        yield from (f"{row.__name__}.{name} has no column" for name in sorted(needed - columns.keys()))
        yield from (f"column {name} has no field in {row.__name__}" for name in sorted(columns.keys() - fields.keys()))
    elif len(columns) == 1:
        # `first` says None where there is no row; a NULL in a row is for the caller to exclude
        fields = dict.fromkeys(columns, row)
    else:
        yield f"it returns {len(columns)} columns; then its row type is a Struct, not {row.__name__}"
        return
    for name, column in columns.items():
        if name in fields:
            yield from _about_type(name, column, fields[name])


def _about_type(name: str, column: Column, annotation: object) -> Iterator[str]:
    kinds = set(_kinds(annotation))
    if not any(_fits(column.type, kind) for kind in kinds - {types.NoneType}):
        yield f"{name} is {column.type}, its field says {annotation}"
    if column.may_be_null and not kinds & {types.NoneType, object}:
        yield f"{name} may be NULL, its field says {annotation}"


def _kinds(annotation: object) -> Iterator[object]:
    """The plain types that a field may hold: unions, Literals, Annotated and enums taken apart, lists left as they are."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        for one in inner:
            yield from _kinds(one)
    elif origin is typing.Annotated:
        yield from _kinds(inner[0])
    elif origin is typing.Literal:
        yield from {type(value) for value in inner}
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from {type(member.value) for member in annotation}
    elif annotation is None:
        yield types.NoneType
    else:
        yield annotation


def _fits(type_: str, kind: object) -> bool:
    origin = typing.get_origin(kind)
    if type_ in ("json", "jsonb"):
        return kind is object or origin in (dict, list) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))
    if type_.startswith("_"):
        return origin is list and set(_kinds(typing.get_args(kind)[0])) - {types.NoneType} == {PYTHON.get(type_[1:])}
    return kind is PYTHON.get(type_, f"add {type_} to PYTHON in {__name__}")


@pytest.fixture(scope="module")
def owner(server: Server, template: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url(template), autocommit=True) as conn:
        yield conn


def test_every_query_prepares_and_its_columns_are_what_its_row_type_says(owner: psycopg.Connection):
    with_vectors = has_vectors(owner)  # without pgvector there is no halfvec, and nobody asks these: nothing is embedded
    asked = [(name, query) for name, query in queries() if with_vectors or not needs_vectors(query)]

    found = [f"{name}: {said}" for name, query in asked for said in complaints(owner, query)]

    excused = {known for known in NEVER_NULL for said in found if said.startswith(f"{known} may be NULL")}
    assert [said for said in found if not any(said.startswith(f"{known} may be NULL") for known in NEVER_NULL)] == []
    names = {name for name, _ in asked}
    assert excused == {known for known in NEVER_NULL if known.partition(":")[0] in names}, "take out what is no longer needed"
    assert len(list(queries())) > 50, "the queries were not found"


WITHOUT_TEAM = {
    "the team is what is named": [
        "access.repository.UPDATE_TEAM",
    ],
    "an invitation that its secret has found": ["access.people.repository.use_invitation"],
    "what a worker has claimed or called, of any team": [
        "models.calls.repository.FINISH_RUN",
        "models.calls.repository.stored_answers",
        "models.calls.repository.end_runs",
        "generation.leases.repository.HEARTBEAT",
        "generation.repository.CLAIM",
        "generation.repository.claimed_jobs",
        "generation.repository.STILL_HELD",
        "generation.repository.END_JOBS",
        "generation.repository.SAVE_PROGRESS",
        "generation.repository.lock_held",
        "generation.repository.attach_run",
        "generation.repository.ADD_EVENT",
    ],
    "a model's vectors, of all teams": [
        "embeddings.repository.BACKFILL",
        "embeddings.repository.CLEAR",
        "embeddings.repository.ENTITY_TEXTS",
        "embeddings.repository.FORGET",
        "embeddings.repository.TEXTS",
        "embeddings.repository.TURN_TEXTS",
    ],
    "what the stream hands to each team its own": ["ops.stream.repository.previews", "ops.stream.repository.valid_keys"],
    "a project that the team was asked for before": [
        "consolidation.comparison.repository.BY_WORDS",
        "recall.repository.about_file",
        "recall.repository.NEAR_OBSERVATIONS",
        "recall.search.repository.WORDS_OF_OBSERVATIONS",
        "recall.search.repository.RANKED_FILTERED",
    ],
}
"""By reason: queries that name rows of teams by their ids, and no team."""
_BY_ID = re.compile(r"\b(?:id|number|ids) = (?:ANY\()?%\(\w+\)s")


def test_whoever_names_a_row_by_its_id_names_the_team_too():
    """Row-level security would hold; here are both."""
    tables = re.compile(rf"\b(?:FROM|UPDATE|JOIN) (?:{'|'.join(ROWS)})\b")
    found = {
        name.removeprefix("cmserver.")
        for name, query in queries()
        if tables.search(query.text) and _BY_ID.search(query.text) and "%(team_id)s" not in query.text
    }

    assert found == {name for names in WITHOUT_TEAM.values() for name in names}


def test_a_query_uses_whatever_its_callers_hand_it():
    """A condition or a LIMIT that was taken out of a query leaves its parameter behind."""
    texts = {name: query.text for name, query in queries()}
    calls = [
        (f"{source.module}.{call.func.value.id}", keyword.arg)
        for source in sources()
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        for keyword in call.keywords
        if keyword.arg
    ]

    handed = [(texts[name], name, argument) for name, argument in calls if name in texts]

    assert len(handed) > 500, "the calls were not found"
    assert [f"{name} does not use {argument}" for text, name, argument in handed if f"%({argument})s" not in text] == []


class Team(msgspec.Struct):
    id: UUID
    name: str


class Nothing(msgspec.Struct):
    id: str
    name: str
    archived_at: datetime
    colour: str


class Lists(msgspec.Struct):
    facts: list[UUID] | None
    content: str


class Absent(msgspec.Struct):
    metadata: int
    created_at: int | None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(Team, "SELECT id, title FROM teams"), ['column "title" does not exist']),
        (Query(Team, "SELECT id, name, created_at FROM teams"), ["column created_at has no field in Team"]),
        (
            Query(Nothing, "SELECT id, name, archived_at FROM teams"),
            ["Nothing.colour has no column", "id is uuid, its field says", "archived_at may be NULL, its field says"],
        ),
        (Query(Lists, "SELECT facts, content FROM observations"), ["facts is _text, its field says"]),
        (Query(Absent, "SELECT metadata, created_at FROM teams"), ["metadata is jsonb", "created_at is timestamptz"]),
        (Query(str, "SELECT id FROM teams"), ["id is uuid, its field says"]),
        (Query(UUID, "SELECT id, name FROM teams"), ["it returns 2 columns"]),
        (Query(UUID, "UPDATE teams SET name = name"), ["it returns no rows"]),
        (Query(bool, "SELECT %(this)s IS NULL"), ["could not determine data type of parameter $1"]),
        (Query(str, "SELECT xmin::text::xid AS what FROM teams"), ["what is xid"]),
        (Query(Team, "SELECT id, name FROM teams WHERE id = %(id)s OR name LIKE '100%%' OR id = %(id)s"), []),
    ],
)
def test_the_test_above_sees_what_it_should(owner: psycopg.Connection, query: Query[typing.Any], said: list[str]):
    found = list(complaints(owner, query))

    assert len(found) == len(said)
    for sentence, part in zip(found, said, strict=True):
        assert part in sentence
