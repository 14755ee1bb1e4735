"""The SQL of the timeline: entries on either side of a position, each query from an index in the order of time."""

from __future__ import annotations

from typing import LiteralString
from uuid import UUID

from cmserver.access.model import IN_REACH
from cmserver.base.sql import Conn, Query
from cmserver.observations.model import LIVE, OBSERVATION_COLUMNS, Observation
from cmserver.recall.timeline.model import TimedTurn, TimelinePosition, TimelineRange

OWNS: set[str] = set()

_OBSERVATIONS: LiteralString = f"""
    SELECT {OBSERVATION_COLUMNS}
      FROM observations
     WHERE team_id = %(team_id)s AND {LIVE}
       AND {IN_REACH}
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
       AND (%(summaries)s::boolean IS NULL OR (kind = 'summary') = %(summaries)s::boolean)
"""
EARLIER = Query(
    Observation,
    _OBSERVATIONS + "AND (created_at, id) < (%(at)s::timestamptz, %(id)s::uuid) ORDER BY created_at DESC, id DESC LIMIT %(limit)s",
    prepare=False,
)
LATER = Query(
    Observation,
    _OBSERVATIONS + "AND (created_at, id) > (%(at)s::timestamptz, %(id)s::uuid) ORDER BY created_at, id LIMIT %(limit)s",
    prepare=False,
)

_TURNS: LiteralString = """
    SELECT id, number, agent_event_id AS event_id, project_id, server_session_id, prompt_number, agent_id,
           left(prompt, %(max_chars)s) AS prompt, left(reply, %(max_chars)s) AS reply,
           length(prompt) + coalesce(length(reply), 0) AS chars, created_at
      FROM turns
     WHERE team_id = %(team_id)s
"""
_TURNS_IN_RANGE: LiteralString = (
    _TURNS
    + f"""
       AND created_at > '-infinity' -- all are: the index of the team says it, see rule 3 of migration 0001
       AND {IN_REACH}
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
"""
)
TURNS_EARLIER = Query(
    TimedTurn,
    _TURNS_IN_RANGE
    + "AND (created_at, id) < (%(at)s::timestamptz, %(id)s::uuid)"
    + " ORDER BY created_at DESC, id DESC LIMIT %(limit)s",
    prepare=False,
)
TURNS_LATER = Query(
    TimedTurn,
    _TURNS_IN_RANGE + "AND (created_at, id) > (%(at)s::timestamptz, %(id)s::uuid)" + " ORDER BY created_at, id LIMIT %(limit)s",
    prepare=False,
)
TURN_OF = Query(
    TimedTurn,
    _TURNS + "AND (agent_event_id = %(id)s::uuid OR id = %(id)s::uuid OR number = %(number)s::bigint)",
    prepare=False,
)


async def earlier(
    conn: Conn, team_id: UUID, project_id: UUID | None, position: TimelinePosition, span: TimelineRange
) -> list[Observation | TimedTurn]:
    """At most `span.before` observations, and as many turns, that stand before the position."""
    return await _entries(conn, EARLIER, TURNS_EARLIER, team_id, project_id, position, span, span.before)


async def later(
    conn: Conn, team_id: UUID, project_id: UUID | None, position: TimelinePosition, span: TimelineRange
) -> list[Observation | TimedTurn]:
    """At most `span.after` observations, and as many turns, that stand behind the position."""
    return await _entries(conn, LATER, TURNS_LATER, team_id, project_id, position, span, span.after)


async def turn_of(conn: Conn, team_id: UUID, name: UUID | int, max_chars: int) -> TimedTurn | None:
    """The turn with that number or id, or whose prompt came in the event of that id; None when there is none."""
    id_, number = (None, name) if isinstance(name, int) else (name, None)
    return await TURN_OF.first(conn, team_id=team_id, id=id_, number=number, max_chars=max_chars)


async def _entries(
    conn: Conn,
    observations: Query[Observation],
    turns: Query[TimedTurn],
    team_id: UUID,
    project_id: UUID | None,
    position: TimelinePosition,
    span: TimelineRange,
    limit: int,
) -> list[Observation | TimedTurn]:
    """The entries that both queries find on one side of the position, in no order; `limit` of each."""
    entries: list[Observation | TimedTurn] = []
    shared = {"team_id": team_id, "project_id": project_id, "session_id": span.session_id, "at": position.at, "limit": limit}
    if span.kinds & {"observation", "summary"}:
        summaries = None if {"observation", "summary"} <= span.kinds else "summary" in span.kinds
        entries += await observations.all(conn, **shared, id=position.observation_id, summaries=summaries)
    if span.kinds & {"turn", "prompt"}:
        entries += await turns.all(conn, **shared, id=position.turn_id, max_chars=span.prompt_chars)
    return entries
