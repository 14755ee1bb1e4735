"""Sessions over HTTP: a list, and one. They start and end through ingest."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.http.operation import get, patch
from cmserver.base.http.wire import answer, caller, db, dependency, query, read
from cmserver.base.structs import reshape
from cmserver.sessions import repository
from cmserver.sessions.read import find_session
from cmserver.sessions.wire import ListedSessionOut, OneSessionOut, RenameIn, SessionOut, SessionsOut, SessionsQuery
from cmserver.sessions.write import rename_session


async def get_sessions(request: Request) -> Response:
    """A page of sessions, newest first."""
    principal = await caller(request, Principal)
    filters = query(request, SessionsQuery)
    project_id = await dependency(request, Projects).within(principal, filters.project)
    before, before_id = paging.place(filters.cursor)
    async with db(request).tenant(principal.team_id) as conn:
        rows = await repository.newest(
            conn,
            principal.team_id,
            project_id=project_id,
            active=filters.active,
            platform_source=filters.platform,
            before=before,
            before_id=before_id,
            limit=filters.limit + 1,
        )
        page, next_cursor = paging.page(rows, filters.limit, lambda session: (session.started_at, session.id))
        names = await access.names_of(conn, principal.team_id, {session.project_id for session in page})
        labels = await repository.labels(conn, principal.team_id, [session.id for session in page])
    first_prompts = {session_id: label.first_prompt for session_id, label in labels.items()}
    sessions = [
        reshape(session, ListedSessionOut, project=names.get(session.project_id), first_prompt=first_prompts.get(session.id))
        for session in page
    ]
    return answer(SessionsOut(sessions=sessions, next_cursor=next_cursor))


async def get_session(request: Request) -> Response:
    """One session."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        session = await find_session(conn, principal, str(request.path_params["id"]))
    return answer(OneSessionOut(session=reshape(session, SessionOut)))


async def patch_session(request: Request) -> Response:
    """Give a session a title."""
    principal = await caller(request, Principal)
    change = await read(request, RenameIn)
    name = str(request.path_params["id"])
    session = await db(request).in_tenant(principal.team_id, lambda conn: rename_session(conn, principal, name, change.title))
    return answer(OneSessionOut(session=reshape(session, SessionOut)))


routes = [
    get("/v1/sessions", get_sessions, "observations:read", SessionsOut, query=SessionsQuery),
    get("/v1/sessions/{id}", get_session, "observations:read", OneSessionOut),
    patch("/v1/sessions/{id}", patch_session, "sessions:write", OneSessionOut, body=RenameIn),
]
