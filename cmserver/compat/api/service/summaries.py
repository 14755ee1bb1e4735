"""Summaries of the memory-service that somebody writes, of a session or of a project."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects
from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, db, dependency, query, read_sized
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.text import Key
from cmserver.compat.api.service.frame import (
    DeletionOut,
    ServicePageQuery,
    ServiceSummaryOut,
    Words,
    admit,
    path_id,
    require_session,
    summary_out,
)
from cmserver.observations import repository
from cmserver.observations.model import Correction, Observation
from cmserver.observations.read import NO_SUMMARY, audit_read, find_observation
from cmserver.observations.write import correct, delete, write_summary
from cmserver.redaction.clean import clean_aside
from cmserver.sessions.read import NO_SUCH as NO_SUCH_SESSION


class ServiceSummaryIn(msgspec.Struct, rename="camel", kw_only=True):
    """A summary, of `sessionId` or of `projectId`."""

    content: Words
    session_id: UUID | None = None
    project_id: Key | None = None


class ServiceSummaryChangeIn(msgspec.Struct, rename="camel", kw_only=True):
    """The new text."""

    content: Words


async def get_session_summaries(request: Request) -> Response:
    """A page of a session's summaries, newest first."""
    principal = await admit(request)
    session_id = path_id(request, NO_SUCH_SESSION)
    params = query(request, ServicePageQuery)
    async with db(request).tenant(principal.team_id) as conn:
        session = await require_session(conn, principal, session_id)
        return answer(await _page(conn, principal, params, session.project_id, session.id))


async def get_project_summaries(request: Request) -> Response:
    """A page of a project's summaries, newest first."""
    principal = await admit(request)
    name = str(request.path_params["id"])
    params = query(request, ServicePageQuery)
    async with db(request).tenant(principal.team_id) as conn:
        project = await projects.require_project(conn, principal, name)
        return answer(await _page(conn, principal, params, project.id, None))


async def _page(
    conn: Conn, principal: Principal, params: ServicePageQuery, project_id: UUID, session_id: UUID | None
) -> list[ServiceSummaryOut]:
    rows = await repository.newest(
        conn,
        principal.team_id,
        project_id=project_id,
        session_id=session_id,
        kind="summary",
        limit=params.limit + params.offset,
    )
    shown = rows[params.offset :]
    await audit_read(conn, principal, project_id, "list", shown)
    return [*map(summary_out, shown)]


async def post_summary(request: Request) -> Response:
    """Keep a summary; 400 without a session or a project."""
    principal = await admit(request)
    new, size_bytes = await read_sized(request, ServiceSummaryIn)
    if new.session_id is None and new.project_id is None:
        raise Invalid.at("$.sessionId", "Send `sessionId` or `projectId`.")
    content = await _clean(request, new.content, size_bytes)

    async def make(conn: Conn) -> Observation:
        session = await require_session(conn, principal, new.session_id) if new.session_id else None
        project = await projects.require_project(conn, principal, new.project_id or str(session and session.project_id))
        if session is not None and session.project_id != project.id:
            raise Invalid.at("$.projectId", "The session is of another project.")
        return await write_summary(conn, principal, project.id, session.id if session else None, content)

    return answer(summary_out(await db(request).in_tenant(principal.team_id, make)), 201)


async def patch_summary(request: Request) -> Response:
    """Change the text of a summary."""
    principal = await admit(request)
    change, size_bytes = await read_sized(request, ServiceSummaryChangeIn)
    content = await _clean(request, change.content, size_bytes)

    async def apply(conn: Conn) -> Observation:
        summary = await _find(conn, request, principal)
        return await correct(conn, principal, str(summary.id), Correction(content=content))

    return answer(summary_out(await db(request).in_tenant(principal.team_id, apply)))


async def delete_summary(request: Request) -> Response:
    """Delete a summary."""
    principal = await admit(request)

    async def apply(conn: Conn) -> DeletionOut:
        summary = await _find(conn, request, principal)
        return DeletionOut(id=await delete(conn, principal, str(summary.id)))

    return answer(await db(request).in_tenant(principal.team_id, apply))


async def _find(conn: Conn, request: Request, principal: Principal) -> Observation:
    summary = await find_observation(conn, principal, str(path_id(request, NO_SUMMARY)))
    if summary.kind != "summary":
        raise NotFound("There is no such summary.")
    return summary


async def _clean(request: Request, content: str, size_bytes: int) -> str:
    max_chars = dependency(request, Settings).field_max_chars
    return cast("str", (await clean_aside(content, field_max_chars=max_chars, size_bytes=size_bytes, at="$.content")).value)


routes = [
    Operation(
        "POST", "/summaries", post_summary, scope="observations:write", body=ServiceSummaryIn, answers={201: ServiceSummaryOut}
    ),
    Operation(
        "PATCH",
        "/summaries/{id}",
        patch_summary,
        scope="observations:write",
        body=ServiceSummaryChangeIn,
        answers={200: ServiceSummaryOut},
    ),
    Operation("DELETE", "/summaries/{id}", delete_summary, scope="observations:write", answers={200: DeletionOut}),
    Operation(
        "GET",
        "/sessions/{id}/summaries",
        get_session_summaries,
        scope="observations:read",
        query=ServicePageQuery,
        answers={200: list[ServiceSummaryOut]},
    ),
    Operation(
        "GET",
        "/projects/{id}/summaries",
        get_project_summaries,
        scope="observations:read",
        query=ServicePageQuery,
        answers={200: list[ServiceSummaryOut]},
    ),
]
