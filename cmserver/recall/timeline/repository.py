"""The SQL of the timeline: on either side of a place as many as are asked for, each query from an index in the order of time."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.observations.model import Observation
from cmserver.recall.timeline.model import Around, Place, TimedPrompt

OWNS: set[str] = set()

EARLIER = Query(
    Observation,
    """
    SELECT id, number, project_id, team_id, server_session_id, scope, kind, type, origin, title, subtitle, narrative, facts,
           concepts, files_read, files_modified, summary, prompt_number, content, read_tokens, discovery_tokens, metadata,
           created_by_job_id, access_count, last_accessed_at, created_at, updated_at
      FROM observations
     WHERE team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
       AND (%(summaries)s::boolean IS NULL OR (kind = 'summary') = %(summaries)s::boolean)
       AND (created_at, id) < (%(at)s::timestamptz, %(id)s::uuid)
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """,
    prepare=False,
)

LATER = Query(
    Observation,
    """
    SELECT id, number, project_id, team_id, server_session_id, scope, kind, type, origin, title, subtitle, narrative, facts,
           concepts, files_read, files_modified, summary, prompt_number, content, read_tokens, discovery_tokens, metadata,
           created_by_job_id, access_count, last_accessed_at, created_at, updated_at
      FROM observations
     WHERE team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
       AND (%(summaries)s::boolean IS NULL OR (kind = 'summary') = %(summaries)s::boolean)
       AND (created_at, id) > (%(at)s::timestamptz, %(id)s::uuid)
     ORDER BY created_at, id
     LIMIT %(limit)s
    """,
    prepare=False,
)

PROMPTS_EARLIER = Query(
    TimedPrompt,
    """
    SELECT agent_event_id AS event_id, project_id, server_session_id, prompt_number, left(text, %(max_chars)s) AS text,
           length(text) AS chars, created_at
      FROM session_prompts
     WHERE team_id = %(team_id)s AND created_at > '-infinity' -- all are: the index of the team says it, see migration 0014
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
       AND (created_at, agent_event_id) < (%(at)s::timestamptz, %(id)s::uuid)
     ORDER BY created_at DESC, agent_event_id DESC
     LIMIT %(limit)s
    """,
    prepare=False,
)

PROMPTS_LATER = Query(
    TimedPrompt,
    """
    SELECT agent_event_id AS event_id, project_id, server_session_id, prompt_number, left(text, %(max_chars)s) AS text,
           length(text) AS chars, created_at
      FROM session_prompts
     WHERE team_id = %(team_id)s AND created_at > '-infinity' -- all are: the index of the team says it, see migration 0014
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
       AND (created_at, agent_event_id) > (%(at)s::timestamptz, %(id)s::uuid)
     ORDER BY created_at, agent_event_id
     LIMIT %(limit)s
    """,
    prepare=False,
)

PROMPT_OF = Query(
    TimedPrompt,
    """
    SELECT agent_event_id AS event_id, project_id, server_session_id, prompt_number, left(text, %(max_chars)s) AS text,
           length(text) AS chars, created_at
      FROM session_prompts WHERE agent_event_id = %(event_id)s AND team_id = %(team_id)s
    """,
)


async def earlier(
    conn: Conn, team_id: UUID, project_id: UUID | None, place: Place, wanted: Around
) -> list[Observation | TimedPrompt]:
    """At most `wanted.before` observations, and as many prompts, that stand before the place."""
    found: list[Observation | TimedPrompt] = []
    asked: dict[str, object] = {"team_id": team_id, "project_id": project_id, "session_id": wanted.session_id, "at": place.at}
    if wanted.what & {"observation", "summary"}:
        found += await EARLIER.all(conn, **asked, id=place.observation_id, summaries=_only_summaries(wanted), limit=wanted.before)
    if "prompt" in wanted.what:
        found += await PROMPTS_EARLIER.all(conn, **asked, id=place.event_id, max_chars=wanted.prompt_chars, limit=wanted.before)
    return found


async def later(
    conn: Conn, team_id: UUID, project_id: UUID | None, place: Place, wanted: Around
) -> list[Observation | TimedPrompt]:
    """At most `wanted.after` observations, and as many prompts, that stand behind the place."""
    found: list[Observation | TimedPrompt] = []
    asked: dict[str, object] = {"team_id": team_id, "project_id": project_id, "session_id": wanted.session_id, "at": place.at}
    if wanted.what & {"observation", "summary"}:
        found += await LATER.all(conn, **asked, id=place.observation_id, summaries=_only_summaries(wanted), limit=wanted.after)
    if "prompt" in wanted.what:
        found += await PROMPTS_LATER.all(conn, **asked, id=place.event_id, max_chars=wanted.prompt_chars, limit=wanted.after)
    return found


async def prompt_of(conn: Conn, team_id: UUID, event_id: UUID, max_chars: int) -> TimedPrompt | None:
    """The prompt that came in that event."""
    return await PROMPT_OF.first(conn, team_id=team_id, event_id=event_id, max_chars=max_chars)


def _only_summaries(wanted: Around) -> bool | None:
    """None where both are wanted."""
    return None if {"observation", "summary"} <= wanted.what else "summary" in wanted.what
