"""Summaries of the memory-service: of a session, or of a project, whose newest one is its overview."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, Invalid, NotFound
from cmserver.base.http.operation import Operation, get, patch, post
from cmserver.base.http.wire import answer, db, dependency, path_id, query, read_sized
from cmserver.base.sql import Conn
from cmserver.base.text import Key
from cmserver.doors.memory_service.frame import (
    DeletionOut,
    ServicePageQuery,
    ServiceSummaryOut,
    Words,
    admit,
    find_project,
    find_reserved_id,
    overview_out,
    require_session,
    summary_out,
)
from cmserver.graph.overviews.make import change_overview, delete_overview, find_overview, make_overview, read_overview
from cmserver.graph.overviews.model import Overview
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.observations import repository as observations
from cmserver.observations.model import Correction, Observation, ObservationFilter
from cmserver.observations.read import audit_read, find_observation
from cmserver.observations.write import correct, delete, write_summary
from cmserver.redaction.clean import clean_aside
from cmserver.sessions.read import NO_SUCH as NO_SUCH_SESSION

_NO_SUMMARY = "There is no such summary."


class ServiceSummaryIn(msgspec.Struct, rename="camel", kw_only=True):
    """A summary, of `sessionId` or of `projectId`."""

    content: Words
    session_id: UUID | None = None
    project_id: Key | None = None


class ServiceSummaryChangeIn(msgspec.Struct, rename="camel", kw_only=True):
    """The new text."""

    content: Words


class NothingToSummariseOut(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no overview."""

    error: str


async def get_session_summaries(request: Request) -> Response:
    """A page of a session's summaries, newest first."""
    principal = await admit(request)
    session_id = path_id(request, NO_SUCH_SESSION)
    params = query(request, ServicePageQuery)
    async with db(request).tenant(principal.team_id) as conn:
        session = await require_session(conn, principal, session_id)
        return answer(await _page(conn, principal, params, session.project_id, session.id))


async def get_project_summaries(request: Request) -> Response:
    """A page of a project's summaries and its overview, newest first."""
    principal = await admit(request)
    name = str(request.path_params["id"])
    params = query(request, ServicePageQuery)
    async with db(request).tenant(principal.team_id) as conn:
        project = await projects.require_project(conn, principal, name)
        return answer(await _page(conn, principal, params, project.id, None))


async def _page(
    conn: Conn, principal: Principal, params: ServicePageQuery, project_id: UUID, session_id: UUID | None
) -> list[ServiceSummaryOut]:
    overview = None if session_id else await read_overview(conn, principal, project_id)
    # The overview has a place among the others: it is before the page when the last one before that is older.
    rows_before = min(params.offset, 1) if overview else 0
    wanted = ObservationFilter(project_id=project_id, session_id=session_id, kind="summary")
    limit, offset = params.limit + rows_before, params.offset - rows_before
    rows = await observations.newest(conn, principal.team_id, wanted, limit=limit, offset=offset)
    await audit_read(conn, principal, project_id, "list", rows)
    reserved_id = await find_reserved_id(conn, principal)
    page = [summary_out(row, reserved_id) for row in rows]
    if overview is None or (rows_before and (not rows or rows[0].created_at < overview.made_at)):
        return page[: params.limit]
    page = [*page[rows_before:], overview_out(overview)]
    return sorted(page, key=lambda summary: summary.created_at, reverse=True)[: params.limit]


async def post_summary(request: Request) -> Response:
    """Keep a summary of a session, or else of a project: the newest one of those is its overview. 400 without either."""
    principal = await admit(request)
    new, size_bytes = await read_sized(request, ServiceSummaryIn)
    if new.session_id is None and new.project_id is None:
        raise Invalid.at("$.sessionId", "Send `sessionId` or `projectId`.")
    content = await _clean(new.content, size_bytes)

    async def make(conn: Conn) -> ServiceSummaryOut:
        session = await require_session(conn, principal, new.session_id) if new.session_id else None
        project = await find_project(conn, principal, new.project_id or str(session and session.project_id))
        if session is not None and session.project_id != project.id:
            raise Invalid.at("$.projectId", "The session is of another project.")
        summary = await write_summary(conn, principal, project.id, session.id if session else None, content)
        return summary_out(summary, await find_reserved_id(conn, principal))

    return answer(await db(request).in_tenant(principal.team_id, make), 201)


async def patch_summary(request: Request) -> Response:
    """Change the text of a summary or an overview."""
    principal = await admit(request)
    change, size_bytes = await read_sized(request, ServiceSummaryChangeIn)
    content = await _clean(change.content, size_bytes)

    async def apply(conn: Conn) -> ServiceSummaryOut:
        found = await _find(conn, request, principal)
        if isinstance(found, Overview):
            return overview_out(await change_overview(conn, principal, found, content))
        changed = await correct(conn, principal, str(found.id), Correction(content=content))
        return summary_out(changed, await find_reserved_id(conn, principal))

    return answer(await db(request).in_tenant(principal.team_id, apply))


async def delete_summary(request: Request) -> Response:
    """Delete a summary or an overview."""
    principal = await admit(request)

    async def apply(conn: Conn) -> DeletionOut:
        found = await _find(conn, request, principal)
        if isinstance(found, Overview):
            await delete_overview(conn, principal, found)
        else:
            await delete(conn, principal, str(found.id))
        return DeletionOut(id=found.id)

    return answer(await db(request).in_tenant(principal.team_id, apply))


async def post_summarize(request: Request) -> Response:
    """Make the overview of a project; 422 when nothing is remembered of it."""
    principal = await admit(request)
    name = str(request.path_params["id"])
    try:
        overview = await make_overview(db(request), dependency(request, OverviewWriter), principal, name)
    except Conflict as error:
        return answer(NothingToSummariseOut(error=str(error)), 422)
    return answer(overview_out(overview), 201)


async def get_overview(request: Request) -> Response:
    """The overview of a project: the newest that was made or written; null when there is none yet."""
    principal = await admit(request)
    name = str(request.path_params["id"])
    async with db(request).tenant(principal.team_id) as conn:
        project = await projects.require_project(conn, principal, name)
        made = await read_overview(conn, principal, project.id)
        written = await observations.project_summary(conn, principal.team_id, project.id)
        if written is not None and (made is None or made.made_at < written.created_at):
            await audit_read(conn, principal, project.id, "list", [written])
            return answer(summary_out(written, None))
    return answer(overview_out(made) if made else None)


async def _find(conn: Conn, request: Request, principal: Principal) -> Observation | Overview:
    summary_id = path_id(request, _NO_SUMMARY)
    overview = await find_overview(conn, principal, summary_id)
    if overview is not None:
        return overview
    summary = await find_observation(conn, principal, str(summary_id))
    if summary.kind != "summary":
        raise NotFound(_NO_SUMMARY)
    return summary


async def _clean(content: str, size_bytes: int) -> str:
    return cast("str", (await clean_aside(content, size_bytes=size_bytes, at="$.content")).value)


routes = [
    post("/summaries", post_summary, "observations:write", ServiceSummaryOut, status=201, body=ServiceSummaryIn),
    patch("/summaries/{id}", patch_summary, "observations:write", ServiceSummaryOut, body=ServiceSummaryChangeIn),
    Operation("DELETE", "/summaries/{id}", delete_summary, "observations:write", DeletionOut),
    get("/sessions/{id}/summaries", get_session_summaries, "observations:read", list[ServiceSummaryOut], query=ServicePageQuery),
    get("/projects/{id}/summaries", get_project_summaries, "observations:read", list[ServiceSummaryOut], query=ServicePageQuery),
    post("/projects/{id}/summarize", post_summarize, "observations:write", {201: ServiceSummaryOut, 422: NothingToSummariseOut}),
    get("/projects/{id}/overview", get_overview, "observations:read", (ServiceSummaryOut, type(None))),
]
