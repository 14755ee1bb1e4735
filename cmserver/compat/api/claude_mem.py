"""The paths of claude-mem's server that have another name here: its memories are our observations."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, body, caller, convert, db, query
from cmserver.base.paging import Limit
from cmserver.base.redaction.clean import decode_json
from cmserver.base.text import Key
from cmserver.observations import read
from cmserver.observations.model import TYPES, Kind, Manual, ObservationType
from cmserver.observations.tidy import tidy
from cmserver.observations.wire import DeletedOut, ObservationOut, observation_out, source_out
from cmserver.observations.write import delete, write


class MemoryIn(msgspec.Struct, rename="camel", kw_only=True):
    """A memory to keep: its text in `content` or `narrative`. A `kind` or `type` that is one of our types is its type."""

    project_id: Key | None = None
    content: str | None = None
    narrative: str | None = None
    kind: str | None = None
    type: str | None = None
    title: str | None = None
    subtitle: str | None = None
    facts: list[str] | None = None
    concepts: list[str] | None = None
    files_read: list[str] | None = None
    files_modified: list[str] | None = None
    server_session_id: UUID | None = None
    metadata: dict[str, object] | None = None


class MemoriesQuery(msgspec.Struct, rename="camel", kw_only=True):
    """Without `projectId` (or `project`), a key of the whole team sees all its projects."""

    project_id: Key | None = None
    project: Key | None = None
    kind: Kind | None = None
    limit: Limit = 50
    cursor: str | None = None


class MemoryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One memory."""

    memory: ObservationOut


class MemoriesOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    memories: list[ObservationOut]
    next_cursor: str | None


async def post_memory(request: Request) -> Response:
    """Keep a memory, as claude-mem's server does: an observation by hand, from which nothing is generated."""
    who = await caller(request, Principal)
    raw = await body(request)
    asked = convert(decode_json(raw or b"{}"), MemoryIn)
    project = await _projects(request).named_or_own(who, asked.project_id, at="$.projectId")
    given = Manual(
        project_id=project.id,
        server_session_id=asked.server_session_id,
        type=_type(asked),
        title=asked.title,
        subtitle=asked.subtitle,
        narrative=asked.narrative,
        content=asked.content,
        facts=asked.facts or [],
        concepts=asked.concepts or [],
        files_read=asked.files_read or [],
        files_modified=asked.files_modified or [],
        metadata=asked.metadata or {},
    )
    most = cast("int", request.app.state.field_max_chars)
    tidied = await tidy(given, field_max_chars=most, size_bytes=len(raw))
    (made,) = await db(request).in_tenant(who.team_id, lambda conn: write(conn, who, [tidied]))
    return answer(MemoryOut(memory=observation_out(made)), 201)


async def get_memories(request: Request) -> Response:
    """A page of memories, newest first: the observations under their name at claude-mem."""
    who = await caller(request, Principal)
    asked = query(request, MemoriesQuery)
    project_id = await _projects(request).within(who, asked.project_id or asked.project)
    async with db(request).tenant(who.team_id) as conn:
        page = await read.page(conn, who, project_id=project_id, limit=asked.limit, kind=asked.kind, cursor=asked.cursor)
    return answer(MemoriesOut(memories=[observation_out(one) for one in page.observations], next_cursor=page.next_cursor))


async def get_memory(request: Request) -> Response:
    """One memory, by id or number, with its sources."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        one, sources = await read.one(conn, who, str(request.path_params["id"]))
    return answer(MemoryOut(memory=observation_out(one, sources=[source_out(source) for source in sources])))


async def delete_memory(request: Request) -> Response:
    """Delete a memory."""
    who = await caller(request, Principal)
    named = str(request.path_params["id"])
    deleted = await db(request).in_tenant(who.team_id, lambda conn: delete(conn, who, named))
    return answer(DeletedOut(id=deleted))


def _type(asked: MemoryIn) -> ObservationType:
    """What claude-mem says under `kind` for what a model has made is our type; its other words (`manual`, `note`) say nothing."""
    named = next((word for word in (asked.type, asked.kind) if word in TYPES), "discovery")
    return cast("ObservationType", named)


def _projects(request: Request) -> Projects:
    return cast("Projects", request.app.state.projects)


routes = [
    Operation("GET", "/v1/memories", get_memories, scope="observations:read", query=MemoriesQuery, answers={200: MemoriesOut}),
    Operation("POST", "/v1/memories", post_memory, scope="observations:write", body=MemoryIn, answers={201: MemoryOut}),
    Operation("GET", "/v1/memories/{id}", get_memory, scope="observations:read", answers={200: MemoryOut}),
    Operation("DELETE", "/v1/memories/{id}", delete_memory, scope="observations:write", answers={200: DeletedOut}),
]
