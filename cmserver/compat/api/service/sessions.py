"""Sessions of the memory-service. Its externalId is the agent's id of ours, and unique in the team."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import audit, projects
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, Invalid, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, db, dependency, query, read, read_sized
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.text import Key
from cmserver.compat.api.service.frame import (
    PLATFORM,
    ServicePageQuery,
    ServiceSessionOut,
    admit,
    find_project_id,
    reserved_project,
    session_out,
)
from cmserver.redaction.clean import clean_aside
from cmserver.redaction.identifiers import Identifiers
from cmserver.sessions import repository
from cmserver.sessions.model import MAX_TITLE_CHARS, NewSession, Session
from cmserver.sessions.read import NO_SUCH
from cmserver.sessions.write import find_or_make, rename_session

_TAKEN = "A session with this externalId exists already."
Title = Annotated[str, Meta(min_length=1, max_length=MAX_TITLE_CHARS)]


class ServiceSessionsQuery(ServicePageQuery, rename="camel", kw_only=True):
    """All sessions of the team, or of one project."""

    project_id: Key | None = None


class ServiceSessionIn(msgspec.Struct, rename="camel", kw_only=True):
    """A new session; without `projectId` it belongs to no project."""

    external_id: Key
    name: Title | None = None
    project_id: Key | None = None
    metadata: dict[str, object] | None = None


class ServiceSessionChangeIn(msgspec.Struct, rename="camel", kw_only=True):
    """What is not sent stays. `name: null` removes the name."""

    name: Title | UnsetType | None = UNSET
    project_id: UUID | UnsetType | None = UNSET


async def get_sessions(request: Request) -> Response:
    """A page of sessions, newest first."""
    principal = await admit(request)
    params = query(request, ServiceSessionsQuery)
    async with db(request).tenant(principal.team_id) as conn:
        rows = await repository.newest(
            conn,
            principal.team_id,
            project_id=await find_project_id(conn, principal, params.project_id),
            active=None,
            platform_source=None,
            before=None,
            before_id=None,
            limit=params.limit + params.offset,
        )
        reserved_id = await _reserved_id(conn, principal)
    return answer([session_out(session, reserved_id) for session in rows[params.offset :]])


async def post_session(request: Request) -> Response:
    """Make a session; 409 when its externalId is taken."""
    principal = await admit(request)
    new, size_bytes = await read_sized(request, ServiceSessionIn)
    max_chars = dependency(request, Settings).field_max_chars
    metadata = await clean_aside(new.metadata or {}, field_max_chars=max_chars, size_bytes=size_bytes, at="$.metadata")
    external_id = dependency(request, Identifiers).clean(new.external_id)

    async def make(conn: Conn) -> ServiceSessionOut:
        if await repository.by_agents_id(conn, principal.team_id, external_id, project_id=None):
            raise Conflict(_TAKEN)
        project = (
            await reserved_project(conn, principal)
            if new.project_id is None
            else await projects.require_project(conn, principal, new.project_id)
        )
        wanted = NewSession(
            external_session_id=external_id,
            content_session_id=external_id,
            platform_source=PLATFORM,
            metadata=cast("dict[str, object]", metadata.value),
            started_at=datetime.now(UTC),
        )
        session, is_new = await find_or_make(conn, principal.team_id, project.id, wanted, key_id=project.key_id)
        if not is_new:
            raise Conflict(_TAKEN)
        await audit.record(conn, principal, "session.started", "session", session.id, project_id=project.id)
        if new.name is not None:
            session = await rename_session(conn, principal, str(session.id), new.name)
        return session_out(session, await _reserved_id(conn, principal))

    return answer(await db(request).in_tenant(principal.team_id, make), 201)


async def get_session_by_external_id(request: Request) -> Response:
    """One session by its externalId."""
    principal = await admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        session = await _find_by_external_id(conn, request, principal)
        return answer(session_out(session, await _reserved_id(conn, principal)))


async def patch_session(request: Request) -> Response:
    """Name a session."""
    principal = await admit(request)
    change = await read(request, ServiceSessionChangeIn)

    async def apply(conn: Conn) -> ServiceSessionOut:
        session = await _find_by_external_id(conn, request, principal)
        reserved_id = await _reserved_id(conn, principal)
        current = None if session.project_id == reserved_id else session.project_id
        if change.project_id is not UNSET and change.project_id != current:
            raise Invalid.at("$.projectId", "A session stays in its project.")
        if change.name is not UNSET:
            session = await rename_session(conn, principal, str(session.id), change.name)
        return session_out(session, reserved_id)

    return answer(await db(request).in_tenant(principal.team_id, apply))


async def _find_by_external_id(conn: Conn, request: Request, principal: Principal) -> Session:
    external_id = dependency(request, Identifiers).clean(str(request.path_params["externalId"]))
    session = await repository.by_agents_id(conn, principal.team_id, external_id, project_id=principal.project_id)
    if session is None:
        raise NotFound(NO_SUCH)
    return session


async def _reserved_id(conn: Conn, principal: Principal) -> UUID | None:
    """The id of the project of sessions without one; None while there is none."""
    project = await projects.find(conn, principal, PLATFORM)
    return project.id if project else None


routes = [
    Operation(
        "GET",
        "/sessions",
        get_sessions,
        scope="observations:read",
        query=ServiceSessionsQuery,
        answers={200: list[ServiceSessionOut]},
    ),
    Operation("POST", "/sessions", post_session, scope="sessions:write", body=ServiceSessionIn, answers={201: ServiceSessionOut}),
    Operation(
        "GET",
        "/sessions/by-external/{externalId}",
        get_session_by_external_id,
        scope="observations:read",
        answers={200: ServiceSessionOut},
    ),
    Operation(
        "PATCH",
        "/sessions/by-external/{externalId}",
        patch_session,
        scope="sessions:write",
        body=ServiceSessionChangeIn,
        answers={200: ServiceSessionOut},
    ),
]
