"""What if somebody forgets the team in a query? Every query that has it is run without it, on the connection of one team, with
all ids of another: row-level security must hold by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from psycopg import errors, sql
from psycopg.pq import ExecStatus

from cmserver.base.sql import Jsonb, Query
from tests.house.house import has_vectors, needs_vectors, queries
from tests.house.test_tenancy import OURS, ROWS, THEIRS, fill, team_column

TEAM_PREDICATE = re.compile(r"(?<![\w.])(?:\w+\.)?team_id\s*=\s*%\(team_id\)s")
_PARAMETER = re.compile(r"%\((\w+)\)s")
_PLAIN: dict[str, object] = {
    "int2": 10,
    "int4": 10,
    "int8": 10,
    "float4": 1.0,
    "float8": 1.0,
    "tsquery": "word",
    "numeric": Decimal(1),
    "bool": False,
    "timestamptz": datetime(2100, 1, 1, tzinfo=UTC),
    "date": datetime(2026, 9, 1, tzinfo=UTC).date(),
    "interval": timedelta(days=1),
    "bytea": b"",
    "jsonb": Jsonb([]),
    "json": Jsonb([]),
    "halfvec": "[1,0]",
}


class Seen(msgspec.Struct):
    """What came of a query: whether another team's rows were in the answer, or were changed."""

    shown: bool = False
    changed: bool = False

    def __bool__(self) -> bool:
        return self.shown or self.changed


@pytest.fixture
def theirs(conn: psycopg.Connection) -> dict[str, UUID]:
    fill(conn, OURS)
    return fill(conn, THEIRS)


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as opened:
        yield opened


def with_team() -> list[tuple[str, Query[object]]]:
    return [(name, query) for name, query in queries() if TEAM_PREDICATE.search(query.text)]


def askable(conn: psycopg.Connection) -> list[tuple[str, Query[object]]]:
    """Those that this PostgreSQL knows all types of."""
    with_vectors = has_vectors(conn)
    return [(name, query) for name, query in with_team() if with_vectors or not needs_vectors(query)]


def without_team(query: Query[Any]) -> str:
    return TEAM_PREDICATE.sub("TRUE", query.text)


def run(conn: psycopg.Connection, text: str, theirs: dict[str, UUID], *, behind_policies: bool) -> Seen:
    """Run it with each of their ids, and take everything back."""
    types = _types(conn, text)
    seen = Seen()
    names = [name for name, type_ in types.items() if type_.lstrip("_") in {"uuid", "text", "varchar"} and name != "team_id"]
    for id_ in theirs.values() if names else [THEIRS]:
        values = {name: _value(name, type_, id_, theirs) for name, type_ in types.items()}
        with conn.transaction(force_rollback=True):
            before = _rows(conn)
            if behind_policies:
                conn.execute("SET LOCAL ROLE cmserver_tenant")
                conn.execute("SELECT set_config('cmserver.team_id', %s, true)", [str(OURS)])
            try:
                with conn.transaction():
                    cursor = conn.execute(text.encode(), values)
                    rows = cursor.fetchall() if cursor.description else []
            except psycopg.Error:  # their rows cannot be written like that, or the tenant may not do it at all
                continue
            conn.execute("RESET ROLE")
            seen.shown |= str(THEIRS) in str(rows) or any(str(one) in str(rows) for one in theirs.values() if one != id_)
            seen.changed |= not text.lstrip().upper().startswith("SELECT") and _rows(conn) != before
    return seen


def _types(conn: psycopg.Connection, text: str) -> dict[str, str]:
    """The type of each parameter, as PostgreSQL understands it."""
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text).replace("%%", "%")
    assert conn.pgconn.prepare(b"forgotten", numbered.encode()).status != ExecStatus.FATAL_ERROR, conn.pgconn.error_message
    described = conn.pgconn.describe_prepared(b"forgotten")
    conn.execute("DEALLOCATE forgotten")
    found: dict[str, str] = {}
    for place, name in enumerate(names):
        row = conn.execute("SELECT typname FROM pg_type WHERE oid = %s", [described.param_type(place)]).fetchone()
        found[name] = str(row[0]) if row else "text"
    return found


def _value(name: str, type_: str, id_: UUID, theirs: dict[str, UUID]) -> object:
    if name == "team_id":
        return OURS
    if name == "project_id":
        return theirs["projects"]
    if type_ == "uuid":
        return id_
    if type_ == "_uuid":
        return list(theirs.values())
    if type_ in {"text", "varchar", "name", "bpchar"}:
        table = next((table for table, known in theirs.items() if known == id_), "projects")
        return f"{table} of {THEIRS}"
    if type_ == "_text":
        return [f"{table} of {THEIRS}" for table in theirs]
    return [] if type_.startswith("_") else _PLAIN[type_]


def _rows(conn: psycopg.Connection) -> str:
    """All of theirs in every table, in short."""
    parts = [
        sql.SQL("SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {} t WHERE {} = {}").format(
            sql.Identifier(table), sql.Identifier(team_column(table)), THEIRS
        )
        for table in ROWS
    ]
    return str(conn.execute(sql.SQL(" UNION ALL ").join(parts)).fetchall())


@pytest.mark.slow
def test_no_query_that_forgets_the_team_shows_or_changes_another_teams_rows(conn: psycopg.Connection, theirs: dict[str, UUID]):
    seen = {name: run(conn, without_team(query), theirs, behind_policies=True) for name, query in askable(conn)}

    assert len(seen) > 50
    assert [name for name, one in seen.items() if one] == []


@pytest.mark.slow
def test_without_policies_many_of_them_would(conn: psycopg.Connection, theirs: dict[str, UUID]):
    """So the test above looks where something can be seen."""
    seen = [run(conn, without_team(query), theirs, behind_policies=False) for _, query in askable(conn)]

    assert sum(map(bool, seen)) > len(seen) / 4
    assert any(one.changed for one in seen)


def test_a_query_that_another_team_can_be_seen_through_is_noticed(conn: psycopg.Connection, theirs: dict[str, UUID]):
    (query,) = [query for name, query in with_team() if name == "cmserver.events.repository.by_id"]
    conn.execute("ALTER TABLE agent_events DISABLE ROW LEVEL SECURITY")

    assert run(conn, without_team(query), theirs, behind_policies=True).shown
    assert not run(conn, query.text, theirs, behind_policies=True)


def test_reading_and_writing_are_refused_by_the_policies_alone(conn: psycopg.Connection, theirs: dict[str, UUID]):
    with conn.transaction(force_rollback=True):
        conn.execute("SET LOCAL ROLE cmserver_tenant")
        conn.execute("SELECT set_config('cmserver.team_id', %s, true)", [str(OURS)])

        assert conn.execute("SELECT FROM agent_events WHERE id = %s", [theirs["agent_events"]]).rowcount == 0
        with pytest.raises(errors.InsufficientPrivilege), conn.transaction():
            conn.execute("UPDATE projects SET team_id = %s", [THEIRS])
