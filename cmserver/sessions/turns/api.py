"""Turns over HTTP: a list, and one, whose line people may change."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http.operation import get, patch
from cmserver.base.http.wire import answer, caller, db, dependency, query, read
from cmserver.base.ids import named_id
from cmserver.sessions.read import find_session
from cmserver.sessions.turns.model import parse_turn_number
from cmserver.sessions.turns.read import list_turns, read_turn
from cmserver.sessions.turns.wire import LineIn, OneTurnOut, TurnsOut, TurnsQuery, turn_out
from cmserver.sessions.turns.write import set_line


async def get_turns(request: Request) -> Response:
    """A page of turns, newest first: what users asked, and what agents answered."""
    principal = await caller(request, Principal)
    filters = query(request, TurnsQuery)
    project_id = await dependency(request, Projects).within(principal, filters.project)
    async with db(request).tenant(principal.team_id) as conn:
        session = await find_session(conn, principal, filters.session) if filters.session else None
        page, next_cursor = await list_turns(
            conn,
            principal,
            project_id=project_id or (session and session.project_id),
            session_id=session.id if session else None,
            limit=filters.limit,
            cursor=filters.cursor,
        )
    return answer(TurnsOut(turns=[*map(turn_out, page)], next_cursor=next_cursor))


async def get_turn(request: Request) -> Response:
    """One turn, by id or number."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    number = parse_turn_number(name)
    async with db(request).tenant(principal.team_id) as conn:
        turn = await read_turn(conn, principal, named_id(name) if number is None else number)
    return answer(OneTurnOut(turn=turn_out(turn)))


async def patch_turn(request: Request) -> Response:
    """Say what the line of a turn shall be."""
    principal = await caller(request, Principal)
    change = await read(request, LineIn)
    name = str(request.path_params["id"])
    number = parse_turn_number(name)
    named = named_id(name) if number is None else number
    turn = await db(request).in_tenant(principal.team_id, lambda conn: set_line(conn, principal, named, change.own_line))
    return answer(OneTurnOut(turn=turn_out(turn)))


routes = [
    get("/v1/turns", get_turns, "observations:read", TurnsOut, query=TurnsQuery),
    get("/v1/turns/{id}", get_turn, "observations:read", OneTurnOut),
    patch("/v1/turns/{id}", patch_turn, "observations:write", OneTurnOut, body=LineIn),
]
