"""Sessions of the memory-service. Its externalId is the agent's id of ours, and unique in the team."""

from __future__ import annotations

from typing import Annotated, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.http.operation import delete, get, patch, post
from cmserver.base.http.wire import answer, db, dependency, query, read, read_sized
from cmserver.base.sql import Conn
from cmserver.base.text import Key
from cmserver.doors.memory_service import frame
from cmserver.ingest import session_lifecycle
from cmserver.ops.erasure.session import delete_session
from cmserver.ops.joining.move_session import move_session
from cmserver.redaction.clean import clean_aside
from cmserver.redaction.redact import Identifiers
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import MAX_TITLE_CHARS, NewSession, Session
from cmserver.sessions.read import NO_SUCH
from cmserver.sessions.write import clean_title, rename_session

_TAKEN = "A session with this externalId exists already."
Title = Annotated[str, Meta(min_length=1, max_length=MAX_TITLE_CHARS)]


class ServiceSessionsQuery(frame.ServicePageQuery, rename="camel", kw_only=True):
    """All sessions of the team, or of one project."""

    project_id: Key | None = None


class ServiceSessionIn(msgspec.Struct, rename="camel", kw_only=True):
    """A new session; without `projectId` it belongs to no project."""

    external_id: Key
    name: Title | None = None
    project_id: Key | None = None
    metadata: dict[str, object] | None = None


class ServiceSessionChangeIn(msgspec.Struct, rename="camel", kw_only=True):
    """What is not sent stays. `null` removes the name, or takes the session out of its project."""

    name: Title | UnsetType | None = UNSET
    project_id: Key | UnsetType | None = UNSET


async def get_sessions(request: Request) -> Response:
    """A page of sessions, newest first."""
    principal = await frame.admit(request)
    params = query(request, ServiceSessionsQuery)
    async with db(request).tenant(principal.team_id) as conn:
        project_id, _ = await frame.find_scope(conn, principal, params.project_id, None)
        rows = await sessions.newest(
            conn,
            principal.team_id,
            project_id=project_id,
            active=None,
            platform_source=None,
            before=None,
            before_id=None,
            limit=params.limit,
            offset=params.offset,
        )
        reserved_id = await frame.find_reserved_id(conn, principal)
    return answer([frame.session_out(session, reserved_id) for session in rows])


async def post_session(request: Request) -> Response:
    """Make a session; 409 when its externalId is taken."""
    principal = await frame.admit(request)
    new, size_bytes = await read_sized(request, ServiceSessionIn)
    title = None if new.name is None else clean_title(new.name, at="$.name")
    metadata = await clean_aside(new.metadata or {}, size_bytes=size_bytes, at="$.metadata")
    external_id = dependency(request, Identifiers).clean(new.external_id)

    async def make(conn: Conn) -> frame.ServiceSessionOut:
        await access.lock_names(conn, principal.team_id)  # no two requests take one externalId in two projects
        if await sessions.by_content_id(conn, principal.team_id, external_id, project_id=None):
            raise Conflict(_TAKEN)
        project = await frame.find_project(conn, principal, new.project_id)
        wanted = NewSession(
            external_session_id=external_id,
            content_session_id=external_id,
            platform_source=frame.PLATFORM,
            actor_id=principal.actor_id,
            person_id=principal.user_id,
            metadata=cast("dict[str, object]", metadata.value),
        )
        session, is_new = await session_lifecycle.start(conn, principal, project, wanted)
        if not is_new:
            raise Conflict(_TAKEN)
        if title is not None:
            session = await rename_session(conn, principal, str(session.id), title)
        return frame.session_out(session, await frame.find_reserved_id(conn, principal))

    return answer(await db(request).in_tenant(principal.team_id, make), 201)


async def get_session_by_external_id(request: Request) -> Response:
    """One session by its externalId."""
    principal = await frame.admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        session = await _find_by_external_id(conn, request, principal)
        return answer(frame.session_out(session, await frame.find_reserved_id(conn, principal)))


async def patch_session(request: Request) -> Response:
    """Name a session, or move it with all that was drawn from it to another project, which also needs observations:write."""
    principal = await frame.admit(request)
    change = await read(request, ServiceSessionChangeIn)
    title = change.name if change.name is UNSET or change.name is None else clean_title(change.name, at="$.name")

    async def find_move(conn: Conn) -> tuple[Session, UUID | None]:
        session = await _find_by_external_id(conn, request, principal)
        if change.project_id is UNSET:
            return session, None
        target_id = (await frame.find_project(conn, principal, change.project_id)).id
        return session, None if target_id == session.project_id else target_id

    async def apply(conn: Conn) -> frame.ServiceSessionOut:
        renamed = session if title is UNSET else await rename_session(conn, principal, str(session.id), title)
        return frame.session_out(renamed, await frame.find_reserved_id(conn, principal))

    session, target_id = await db(request).in_tenant(principal.team_id, find_move)
    if target_id is not None:
        principal.require("observations:write")
        session = await move_session(db(request), principal, str(session.id), str(target_id))
    return answer(await db(request).in_tenant(principal.team_id, apply))


async def delete_service_session(request: Request) -> Response:
    """Delete a session with its episodes, its summaries and all else that was drawn from it."""
    principal = await frame.admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        session = await _find_by_external_id(conn, request, principal)
    session_id, _ = await delete_session(db(request), principal, str(session.id), dry_run=False)
    return answer(frame.DeletionOut(id=session_id))


async def _find_by_external_id(conn: Conn, request: Request, principal: Principal) -> Session:
    external_id = dependency(request, Identifiers).clean(str(request.path_params["externalId"]))
    session = await sessions.by_content_id(conn, principal.team_id, external_id, project_id=principal.project_id)
    if session is None:
        raise NotFound(NO_SUCH)
    return session


routes = [
    get("/sessions", get_sessions, "observations:read", list[frame.ServiceSessionOut], query=ServiceSessionsQuery),
    post("/sessions", post_session, "sessions:write", frame.ServiceSessionOut, status=201, body=ServiceSessionIn),
    get("/sessions/by-external/{externalId:path}", get_session_by_external_id, "observations:read", frame.ServiceSessionOut),
    patch(
        "/sessions/by-external/{externalId:path}",
        patch_session,
        "sessions:write",
        frame.ServiceSessionOut,
        body=ServiceSessionChangeIn,
    ),
    delete("/sessions/by-external/{externalId:path}", delete_service_session, "observations:write", frame.DeletionOut),
]
