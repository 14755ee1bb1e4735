"""The SQL of the timeline: entries on either side of a position, each query from an index in the order of time."""

from __future__ import annotations

from typing import LiteralString
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.observations.model import LIVE, OBSERVATION_COLUMNS, Observation
from cmserver.recall.timeline.model import TimedPrompt, TimelinePosition, TimelineRange

OWNS: set[str] = set()

_OBSERVATIONS: LiteralString = f"""
    SELECT {OBSERVATION_COLUMNS}
      FROM observations
     WHERE team_id = %(team_id)s AND {LIVE}
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
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

_PROMPTS: LiteralString = """
    SELECT agent_event_id AS event_id, project_id, server_session_id, prompt_number, left(text, %(max_chars)s) AS text,
           length(text) AS chars, created_at
      FROM session_prompts
     WHERE team_id = %(team_id)s
"""
_PROMPTS_IN_RANGE: LiteralString = (
    _PROMPTS
    + """
       AND created_at > '-infinity' -- all are: the index of the team says it, see migration 0014
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
"""
)
PROMPTS_EARLIER = Query(
    TimedPrompt,
    _PROMPTS_IN_RANGE
    + "AND (created_at, agent_event_id) < (%(at)s::timestamptz, %(id)s::uuid)"
    + " ORDER BY created_at DESC, agent_event_id DESC LIMIT %(limit)s",
    prepare=False,
)
PROMPTS_LATER = Query(
    TimedPrompt,
    _PROMPTS_IN_RANGE
    + "AND (created_at, agent_event_id) > (%(at)s::timestamptz, %(id)s::uuid)"
    + " ORDER BY created_at, agent_event_id LIMIT %(limit)s",
    prepare=False,
)
PROMPT_OF = Query(TimedPrompt, _PROMPTS + "AND agent_event_id = %(event_id)s")


async def earlier(
    conn: Conn, team_id: UUID, project_id: UUID | None, position: TimelinePosition, span: TimelineRange
) -> list[Observation | TimedPrompt]:
    """At most `span.before` observations, and as many prompts, that stand before the position."""
    return await _entries(conn, EARLIER, PROMPTS_EARLIER, team_id, project_id, position, span, span.before)


async def later(
    conn: Conn, team_id: UUID, project_id: UUID | None, position: TimelinePosition, span: TimelineRange
) -> list[Observation | TimedPrompt]:
    """At most `span.after` observations, and as many prompts, that stand behind the position."""
    return await _entries(conn, LATER, PROMPTS_LATER, team_id, project_id, position, span, span.after)


async def prompt_of(conn: Conn, team_id: UUID, event_id: UUID, max_chars: int) -> TimedPrompt | None:
    """The prompt in that event; None when it has none."""
    return await PROMPT_OF.first(conn, team_id=team_id, event_id=event_id, max_chars=max_chars)


async def _entries(
    conn: Conn,
    observations: Query[Observation],
    prompts: Query[TimedPrompt],
    team_id: UUID,
    project_id: UUID | None,
    position: TimelinePosition,
    span: TimelineRange,
    limit: int,
) -> list[Observation | TimedPrompt]:
    """The entries that both queries find on one side of the position, in no order; `limit` of each."""
    entries: list[Observation | TimedPrompt] = []
    shared = {"team_id": team_id, "project_id": project_id, "session_id": span.session_id, "at": position.at, "limit": limit}
    if span.kinds & {"observation", "summary"}:
        summaries = None if {"observation", "summary"} <= span.kinds else "summary" in span.kinds
        entries += await observations.all(conn, **shared, id=position.observation_id, summaries=summaries)
    if "prompt" in span.kinds:
        entries += await prompts.all(conn, **shared, id=position.event_id, max_chars=span.prompt_chars)
    return entries
