"""Reads Contextify's PostgreSQL: its memories, and how they relate. It is only read."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, LiteralString
from uuid import UUID

import msgspec
import psycopg
from psycopg.rows import scalar_row

from cmserver.access.projects import display_name
from cmserver.base.errors import Invalid
from cmserver.memories.model import NO_PROJECT, our_type, parse_type, relationship_word
from cmserver.observations.model import compose
from cmserver.observations.tidy import tidy_line, tidy_list, tidy_text
from cmserver.ops.transfer.ids import derive_id
from cmserver.ops.transfer.model import DataLine, ObservationLine, ProjectLine, RefusedLine, RelationshipLine

_NAME = "contextify"
_YEAR_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE_ROWS = 500
_CONNECT_SECONDS = 10
_PROJECTS: LiteralString = "SELECT project_id FROM memories GROUP BY project_id ORDER BY project_id"
_MEMORIES: LiteralString = "SELECT to_jsonb(m) - 'embedding' FROM memories m ORDER BY m.created_at, m.id"
_RELATIONSHIPS: LiteralString = """
    SELECT to_jsonb(r) || jsonb_build_object('from_row', jsonb_build_array(a.project_id, a.created_at),
                                             'to_row', jsonb_build_array(b.project_id, b.created_at))
      FROM memory_relationships r
      JOIN memories a ON a.id = r.from_memory_id AND a.replaced_by IS NULL
      JOIN memories b ON b.id = r.to_memory_id AND b.replaced_by IS NULL
     ORDER BY r.created_at, r.id
"""
_COUNT: LiteralString = (
    "SELECT (SELECT count(*) FROM memories) + (SELECT count(*) FROM memory_relationships)"
    " + (SELECT count(DISTINCT coalesce(project_id, '')) FROM memories)"
)


class _Memory(msgspec.Struct, kw_only=True):
    """A row of `memories`. Columns that a version does not have are as empty."""

    id: UUID
    title: str | None = None
    content: str | None = None
    summary: str | None = None
    type: str | None = None
    scope: str | None = None
    project_id: str | None = None
    agent_source: str | None = None
    tags: list[str] | None = None
    importance: float | None = None
    ttl_seconds: int | None = None
    access_count: int | None = None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    version: int | None = None
    replaced_by: UUID | None = None


class _Relationship(msgspec.Struct, kw_only=True):
    """A row of `memory_relationships`, with the project and the time of both memories."""

    id: UUID
    from_memory_id: UUID
    from_row: tuple[str | None, datetime]
    to_memory_id: UUID
    to_row: tuple[str | None, datetime]
    relationship: str | None = None
    strength: float | None = None
    context: str | None = None
    created_at: datetime


class ContextifySource:
    """The lines of a database of Contextify. Invalid when it cannot be reached, or is none."""

    name = _NAME
    has_own_ids = False

    def __init__(self, url: str) -> None:
        self._url = url
        with self._open() as conn:
            tables = conn.execute("SELECT to_regclass('memories'), to_regclass('memory_relationships')").fetchone()
            if tables is None or None in tables:
                raise Invalid("The database has none of Contextify's tables (memories, memory_relationships).")

    def count(self) -> int:
        with self._open() as conn:
            return int((conn.execute(_COUNT).fetchone() or (0,))[0])

    def project_ids(self) -> set[UUID]:
        return set()

    def lines(self) -> Iterator[tuple[str, DataLine] | RefusedLine]:
        with self._open() as conn:
            for name in {_project(row): None for row in _rows(conn, _PROJECTS)}:
                line = ProjectLine(id=_project_id(name), canonical_id=name, name=display_name(name), created_at=_YEAR_1970)
                yield f"project {name}", line
            now = datetime.now(UTC)
            for row in _rows(conn, _MEMORIES):
                yield _read_memory(row, now)
            for row in _rows(conn, _RELATIONSHIPS):
                yield _read_relationship(row)

    @contextmanager
    def _open(self) -> Generator[psycopg.Connection]:
        """All that is read over one connection is of one moment."""
        try:
            conn = psycopg.connect(self._url, connect_timeout=_CONNECT_SECONDS)
        except psycopg.ProgrammingError:  # its message may repeat the password
            raise Invalid("The address of Contextify's database must be like postgresql://USER@HOST/contextify.") from None
        except psycopg.OperationalError as error:
            raise Invalid(f"Contextify's database cannot be reached: {str(error).strip()}") from error
        with conn:
            conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            conn.read_only = True
            try:
                yield conn
            except psycopg.Error as error:
                raise Invalid(f"Contextify's database cannot be read: {str(error).strip()}") from error


def _rows(conn: psycopg.Connection, query: LiteralString) -> Iterator[Any]:
    with conn.cursor(name="rows", row_factory=scalar_row) as cursor:
        cursor.itersize = _PAGE_ROWS
        cursor.execute(query)
        yield from cursor


def _read_memory(row: dict[str, object], now: datetime) -> tuple[str, DataLine] | RefusedLine:
    place = f"memories, id {row.get('id')}"
    try:
        memory = msgspec.convert(row, _Memory)
    except msgspec.ValidationError as error:
        return RefusedLine(record="observation", place=place, reason=str(error))
    title, subtitle, narrative = tidy_line(memory.title), tidy_text(memory.summary), tidy_text(memory.content)
    content = narrative or compose(title, subtitle, None, None)
    reason = None
    if memory.replaced_by is not None:
        reason = f"It was merged into another memory, {memory.replaced_by}."
    elif memory.expires_at is not None and memory.expires_at <= now:
        reason = "Its time is over."
    elif not content:
        reason = "It has no text."
    if reason is not None:
        return RefusedLine(record="observation", place=place, reason=reason)
    type_ = parse_type(memory.type)
    return place, ObservationLine(
        id=_memory_id(memory.id, memory.created_at),
        project_id=_project_id(_project(memory.project_id)),
        scope="team" if memory.scope == "global" else "project",
        kind="manual",
        type=our_type(type_),
        caller_type=type_,
        title=title,
        subtitle=subtitle,
        narrative=narrative,
        concepts=tidy_list(memory.tags),
        importance=0.5 if memory.importance is None else min(1.0, max(0.0, memory.importance)),
        content=content,
        metadata={"importedFrom": _NAME},
        agent=tidy_line(memory.agent_source),
        ttl_seconds=_lifetime(memory),
        expires_at=memory.expires_at,
        version=max(1, memory.version or 1),
        access_count=max(0, memory.access_count or 0),
        created_at=memory.created_at,
        updated_at=memory.updated_at,
    )


def _lifetime(memory: _Memory) -> int | None:
    if memory.expires_at is None:
        return None
    seconds = memory.ttl_seconds or int((memory.expires_at - memory.created_at).total_seconds())
    return max(1, seconds)


def _read_relationship(row: dict[str, object]) -> tuple[str, DataLine] | RefusedLine:
    place = f"memory_relationships, id {row.get('id')}"
    try:
        relationship = msgspec.convert(row, _Relationship)
    except msgspec.ValidationError as error:
        return RefusedLine(record="relationship", place=place, reason=str(error))
    word = relationship_word(relationship.relationship or "")
    if word is None:
        return RefusedLine(record="relationship", place=place, reason="It has no word that says how the two relate.")
    (from_project, from_at), (to_project, to_at) = relationship.from_row, relationship.to_row
    return place, RelationshipLine(
        id=derive_id(_NAME, f"relationship {relationship.id}", relationship.created_at),
        from_id=_memory_id(relationship.from_memory_id, from_at),
        from_project_id=_project_id(_project(from_project)),
        to_id=_memory_id(relationship.to_memory_id, to_at),
        to_project_id=_project_id(_project(to_project)),
        relationship=word,
        strength=0.5 if relationship.strength is None else min(1.0, max(0.0, relationship.strength)),
        context=tidy_text(relationship.context),
        created_at=relationship.created_at,
    )


def _project(name: str | None) -> str:
    return (name or "").strip() or NO_PROJECT


def _project_id(name: str) -> UUID:
    return derive_id(_NAME, f"project {name}", _YEAR_1970)


def _memory_id(memory_id: UUID, created_at: datetime) -> UUID:
    return derive_id(_NAME, f"memory {memory_id}", created_at)
