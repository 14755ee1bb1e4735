"""The doors to sessions: a list, and one of them. They start and end through ingest."""

from __future__ import annotations

from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.base.paging import Limit
from cmserver.base.text import Label, Text
from cmserver.sessions import read
from cmserver.sessions.wire import SessionOut, session_out


class ListQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, a key of the whole team sees all its projects. `active=true` are those that have not ended."""

    project: Text | None = None
    active: bool | None = None
    platform: Label | None = None
    limit: Limit = 50
    cursor: str | None = None


class ListOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    sessions: list[SessionOut]
    next_cursor: str | None


class OneOut(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    session: SessionOut


async def get_sessions(request: Request) -> Response:
    """A page of sessions, newest first."""
    who = await caller(request, Principal)
    asked = query(request, ListQuery)
    project_id = await cast("Projects", request.app.state.projects).within(who, asked.project)
    async with db(request).tenant(who.team_id) as conn:
        page = await read.page(
            conn,
            who.team_id,
            project_id=project_id,
            active=asked.active,
            platform=asked.platform,
            limit=asked.limit,
            cursor=asked.cursor,
        )
    return answer(ListOut(sessions=[session_out(one) for one in page.sessions], next_cursor=page.next_cursor))


async def get_session(request: Request) -> Response:
    """One session."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        session = await read.one(conn, who, str(request.path_params["id"]))
    return answer(OneOut(session=session_out(session)))


routes = [
    Operation("GET", "/v1/sessions", get_sessions, scope="observations:read", query=ListQuery, answers={200: ListOut}),
    Operation("GET", "/v1/sessions/{id}", get_session, scope="observations:read", answers={200: OneOut}),
]
