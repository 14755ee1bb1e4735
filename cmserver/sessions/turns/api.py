"""Turns over HTTP: a list, and one, whose line people may change."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall
from cmserver.sessions.read import find_session
from cmserver.sessions.turns.model import parse_turn_name
from cmserver.sessions.turns.read import list_turns, read_turn
from cmserver.sessions.turns.wire import LineIn, OneTurnOut, TurnsOut, TurnsQuery, turn_out
from cmserver.sessions.turns.write import set_line


@verb.get("/v1/turns", "observations:read")
async def get_turns(call: VerbCall, given: TurnsQuery) -> TurnsOut:
    """A page of turns, newest first: what users asked, and what agents answered."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    async with call.read() as conn:
        session = await find_session(conn, call.principal, given.session) if given.session else None
        page, next_cursor = await list_turns(
            conn,
            call.principal,
            project_id=project_id or (session and session.project_id),
            session_id=session.id if session else None,
            limit=given.limit,
            cursor=given.cursor,
        )
    return TurnsOut(turns=[*map(turn_out, page)], next_cursor=next_cursor)


@verb.get("/v1/turns/{id}", "observations:read")
async def get_turn(call: VerbCall, given: str) -> OneTurnOut:
    """One turn, by id or number."""
    async with call.read() as conn:
        return OneTurnOut(turn=turn_out(await read_turn(conn, call.principal, parse_turn_name(given))))


@verb.patch("/v1/turns/{id}", "observations:write")
async def patch_turn(call: VerbCall, given: LineIn) -> OneTurnOut:
    """Say what the line of a turn shall be."""
    name = parse_turn_name(given.id)
    return OneTurnOut(turn=turn_out(await call.write(lambda conn: set_line(conn, call.principal, name, given.own_line))))


routes = [get_turns, get_turn, patch_turn]
