"""The paths of claude-mem's server that have another name here: its memories are our observations."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http.operation import Operation, get, post
from cmserver.base.http.wire import answer, caller, db, dependency, query, read_sized
from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key
from cmserver.observations.model import TYPES, Kind, ManualObservation, ObservationFilter, ObservationType
from cmserver.observations.read import list_observations, read_observation
from cmserver.observations.tidy import tidy_observation
from cmserver.observations.wire import DeletedObservationOut, ObservationOut, SourceOut, observation_out
from cmserver.observations.write import delete, write


class MemoryIn(msgspec.Struct, rename="camel", kw_only=True):
    """A memory to keep: its text in `content` or `narrative`.

    `type` is its type where that is one of ours; `kind` is claude-mem's word for its type, which is taken where `type` is none of
    ours.
    """

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
    """Newest first."""

    memories: list[ObservationOut]
    next_cursor: str | None


async def post_memory(request: Request) -> Response:
    """Keep a memory, as claude-mem's server does: an observation by hand, from which nothing is generated."""
    principal = await caller(request, Principal)
    params, size_bytes = await read_sized(request, MemoryIn)
    project = await _projects(request).named_or_own(principal, params.project_id, at="$.projectId")
    new = reshape(params, ManualObservation, project_id=project.id, type=_type(params), metadata=params.metadata or {})
    tidied = await tidy_observation(new, size_bytes=size_bytes)
    (observation,) = await db(request).in_tenant(principal.team_id, lambda conn: write(conn, principal, [tidied]))
    return answer(MemoryOut(memory=observation_out(observation)), 201)


async def get_memories(request: Request) -> Response:
    """A page of memories, newest first: the observations under their name at claude-mem."""
    principal = await caller(request, Principal)
    params = query(request, MemoriesQuery)
    project_id = await _projects(request).within(principal, params.project_id or params.project)
    async with db(request).tenant(principal.team_id) as conn:
        wanted = ObservationFilter(project_id=project_id, kind=params.kind)
        observations, next_cursor = await list_observations(conn, principal, wanted, limit=params.limit, cursor=params.cursor)
    return answer(MemoriesOut(memories=[*map(observation_out, observations)], next_cursor=next_cursor))


async def get_memory(request: Request) -> Response:
    """One memory, by id or number, with its sources."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        observation, sources = await read_observation(conn, principal, str(request.path_params["id"]))
    return answer(MemoryOut(memory=observation_out(observation, sources=[reshape(row, SourceOut) for row in sources])))


async def delete_memory(request: Request) -> Response:
    """Delete a memory."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    deleted = await db(request).in_tenant(principal.team_id, lambda conn: delete(conn, principal, name))
    return answer(DeletedObservationOut(id=deleted))


def _type(params: MemoryIn) -> ObservationType:
    """The type that `type` or claude-mem's `kind` names; `discovery` for its other words (`manual`, `note`)."""
    type_ = next((word for word in (params.type, params.kind) if word in TYPES), "discovery")
    return cast("ObservationType", type_)


def _projects(request: Request) -> Projects:
    return dependency(request, Projects)


routes = [
    get("/v1/memories", get_memories, "observations:read", MemoriesOut, query=MemoriesQuery),
    post("/v1/memories", post_memory, "observations:write", MemoryOut, status=201, body=MemoryIn),
    get("/v1/memories/{id}", get_memory, "observations:read", MemoryOut),
    Operation("DELETE", "/v1/memories/{id}", delete_memory, "observations:write", DeletedObservationOut),
]
