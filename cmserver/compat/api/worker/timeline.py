"""What happened around an observation or a moment, as the tools of claude-mem ask for it."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, db, query
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text
from cmserver.compat.api.guest import guest
from cmserver.compat.api.worker.rows import Where, named_of, reach
from cmserver.compat.api.worker.tables import ContentOut, table, told
from cmserver.recall.search import find
from cmserver.recall.timeline import MOST, Timeline, around, timeline

_FOOT = "The whole text of any of them: get_observations with its number."

Depth = Annotated[int, Meta(ge=0, le=1_000_000)]


class TimelineQuery(msgspec.Struct, kw_only=True):
    """`anchor` is a number (12, S13 for a summary) or a time; without one, it is the best that `query` finds.

    On either side 50 are told at most.
    """

    anchor: Text | None = None
    query: Text | None = None
    depth_before: Depth = 10
    depth_after: Depth = 10
    project: Key | None = None


async def get_timeline(request: Request) -> Response:
    """What was recorded before and after an observation, a summary or a moment, as a table for a model."""
    who = await guest(request)
    asked = query(request, TimelineQuery)
    if not (asked.anchor or asked.query):
        raise Invalid.at("$.anchor", "Say around what: `anchor` with a number or a time, or `query` with words to search for.")
    where = await reach(request, who, asked.project)
    if where is None:
        return _nothing()
    async with db(request).tenant(who.team_id) as conn:
        found = await _found(conn, who, where, asked)
        if found is None or not found.observations:
            return _nothing()
        named = await named_of(conn, who, found.observations)
    centre = f"around #{found.anchor.number}" if found.anchor else f"around {found.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    head = f"What was recorded {centre}, oldest first: {len(found.observations)}."
    return answer(told(head, table(found.observations, named, mark=found.anchor), _FOOT))


async def _found(conn: Conn, who: Principal, where: Where, asked: TimelineQuery) -> Timeline | None:
    before, after = min(asked.depth_before, MOST), min(asked.depth_after, MOST)
    if asked.anchor:
        try:
            return await timeline(conn, who, where.project_id, asked.anchor.strip(), before=before, after=after)
        except NotFound:
            return None
    hits = await find(conn, who, where.project_id, asked.query or "", 1)
    return await around(conn, who, where.project_id, hits[0].observation, before, after) if hits else None


def _nothing() -> Response:
    return answer(told("There is nothing there: no such observation, or nothing recorded around it."))


_ANSWERS = {200: ContentOut}

routes = [
    Operation("GET", "/api/timeline", get_timeline, scope="observations:read", query=TimelineQuery, answers=_ANSWERS),
    Operation("GET", "/api/timeline/by-query", get_timeline, scope="observations:read", query=TimelineQuery, answers=_ANSWERS),
]
