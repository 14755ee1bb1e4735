"""What happened around an observation or a moment, as the tools of claude-mem ask for it."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, cast

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
from cmserver.observations.model import Observation
from cmserver.recall.search.meaning import Meaning
from cmserver.recall.search.model import Ranking, Sought
from cmserver.recall.timeline.model import MOST, Around, Timeline
from cmserver.recall.timeline.timeline import around_best, timeline

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
    """What happened before and after an observation, a summary or a moment, prompts among it, as a table for a model."""
    who = await guest(request)
    asked = query(request, TimelineQuery)
    if not (asked.anchor or asked.query):
        raise Invalid.at("$.anchor", "Say around what: `anchor` with a number or a time, or `query` with words to search for.")
    where = await reach(request, who, asked.project)
    if where is None:
        return _nothing()
    by = cast("Ranking", request.app.state.ranking)
    sought = None if asked.anchor else await cast("Meaning", request.app.state.meaning).of(asked.query or "")
    async with db(request).tenant(who.team_id) as conn:
        found = await _found(conn, who, where, asked, by, sought)
        if found is None or not found.told:
            return _nothing()
        named = await named_of(conn, who, found.told)
    centre = (
        f"around #{found.anchor.number}"
        if isinstance(found.anchor, Observation)
        else f"around {found.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    )
    head = f"What was recorded {centre}, oldest first: {len(found.told)}."
    return answer(told(head, table(found.told, named, mark=found.anchor), _FOOT))


async def _found(
    conn: Conn, who: Principal, where: Where, asked: TimelineQuery, by: Ranking, sought: Sought | None
) -> Timeline | None:
    wanted = Around(before=min(asked.depth_before, MOST), after=min(asked.depth_after, MOST))
    if not asked.anchor:
        return await around_best(conn, who, where.project_id, asked.query or "", wanted, ranking=by, sought=sought)
    try:
        return await timeline(conn, who, where.project_id, asked.anchor.strip(), wanted)
    except NotFound:
        return None


def _nothing() -> Response:
    return answer(told("There is nothing there: no such observation, or nothing recorded around it."))


_ANSWERS = {200: ContentOut}

routes = [
    Operation("GET", "/api/timeline", get_timeline, scope="observations:read", query=TimelineQuery, answers=_ANSWERS),
    Operation("GET", "/api/timeline/by-query", get_timeline, scope="observations:read", query=TimelineQuery, answers=_ANSWERS),
]
