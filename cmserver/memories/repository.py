"""The SQL of lists and statistics of memories, and all SQL on the events of their funnel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.access.model import FOUND_ELSEWHERE, IN_REACH_O
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, unprepared_query
from cmserver.consolidation.model import SuggestionStatus
from cmserver.memories import model
from cmserver.observations.model import LABEL, LIVE_O, MEMORY_CONDITIONS, OBSERVATION_COLUMNS, Observation

OWNS = {"memory_telemetry"}

_O_COLUMNS: LiteralString = "o." + OBSERVATION_COLUMNS.replace(", ", ", o.")
_LIVE_OTHER: LiteralString = LIVE_O.replace("o.", "other.")
_IN_SCOPE: LiteralString = f"""((%(project_ids)s::uuid[] IS NULL AND o.{FOUND_ELSEWHERE})
        OR o.project_id = ANY(%(project_ids)s::uuid[])
        OR (o.scope = 'team' AND NOT EXISTS (SELECT FROM projects WHERE id = ANY(%(project_ids)s::uuid[]) AND isolated)))"""
_T_IN_REACH: LiteralString = """CASE WHEN %(project_id)s::uuid IS NOT NULL THEN t.project_id = %(project_id)s::uuid
            ELSE NOT EXISTS (SELECT FROM projects i WHERE i.id = t.project_id AND i.isolated) END"""
"""Of an event, which may be of no project."""

# -- lists

LISTED = Query(
    Observation,
    f"""
    SELECT {_O_COLUMNS} FROM observations o
     WHERE o.team_id = %(team_id)s AND {LIVE_O} AND {_IN_SCOPE} AND {MEMORY_CONDITIONS}
     ORDER BY o.created_at DESC, o.id DESC LIMIT %(limit)s OFFSET %(offset)s
    """,
    prepare=False,
)


# As many as are shown elsewhere: an open pair of which either is not live waits for nobody.
_SUGGESTIONS: LiteralString = f"""
      FROM consolidation_suggestions s
      JOIN observations o ON o.id = s.left_id AND o.team_id = s.team_id
      JOIN observations other ON other.id = s.right_id AND other.team_id = s.team_id
     WHERE s.team_id = %(team_id)s AND s.status = %(status)s
       AND {IN_REACH_O.replace("o.project_id", "s.project_id")}
       AND (s.status <> 'open' OR (({LIVE_O}) AND ({_LIVE_OTHER})))
"""


# -- statistics


_TOKENS: LiteralString = "((length(o.content) + 3) / 4)::bigint"


# -- the funnel

RECORD = Query(
    int,
    """
    INSERT INTO memory_telemetry (team_id, project_id, observation_id, event_type, session_id, request_id, agent, action,
                                  hit_count, latency_ms, query_text)
    SELECT %(team_id)s, n.project_id, n.observation_id, n.event_type, n.session_id, n.request_id, n.agent, n.action,
           n.hit_count, n.latency_ms, n.query_text
      FROM jsonb_populate_recordset(NULL::memory_telemetry, %(rows)s) AS n
    """,
)

_COUNTS: LiteralString = """
           count(*) FILTER (WHERE t.event_type = 'recall_attempt') AS recall_attempts,
           count(*) FILTER (WHERE t.event_type = 'recall_hit') AS recall_hits,
           count(*) FILTER (WHERE t.event_type = 'store_opportunity') AS store_opportunities,
           count(*) FILTER (WHERE t.event_type = 'store_action') AS store_actions
"""
# From the first day to the last, both included, or so many days back.
_EVENTS: LiteralString = f"""
     WHERE t.team_id = %(team_id)s
       AND {_T_IN_REACH}
       AND (%(agent)s::text IS NULL OR t.agent = %(agent)s::text)
       AND t.created_at >= coalesce(%(first)s::date::timestamp AT TIME ZONE 'UTC', now() - make_interval(days => %(days)s))
       AND (%(last)s::date IS NULL OR t.created_at < (%(last)s::date + 1)::timestamp AT TIME ZONE 'UTC')
"""

FUNNEL = Query(model.FunnelCounts, f"SELECT {_COUNTS} FROM memory_telemetry t {_EVENTS}", prepare=False)

FUNNEL_DAYS = Query(
    model.FunnelDay,
    f"""
    SELECT (t.created_at AT TIME ZONE 'UTC')::date AS date, {_COUNTS}
      FROM memory_telemetry t {_EVENTS} GROUP BY 1 ORDER BY 1
    """,
    prepare=False,
)

FUNNEL_AGENTS = Query(
    model.FunnelGroup,
    f"""
    SELECT coalesce(t.agent, 'unknown') AS key, {_COUNTS}
      FROM memory_telemetry t {_EVENTS} GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT %(limit)s
    """,
    prepare=False,
)

FUNNEL_PROJECTS = Query(
    model.FunnelGroup,
    f"""
    SELECT coalesce(p.canonical_id, 'unknown') AS key, {_COUNTS}
      FROM memory_telemetry t LEFT JOIN projects p ON p.id = t.project_id AND p.team_id = t.team_id
    {_EVENTS} GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT %(limit)s
    """,
    prepare=False,
)


async def listed(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, filters: model.MemoryFilters, *, limit: int, offset: int
) -> list[Observation]:
    """Newest first: of these projects and what the team shares; None for all projects."""
    return await LISTED.all(
        conn,
        team_id=team_id,
        project_ids=None if project_ids is None else list(project_ids),
        limit=limit,
        offset=offset,
        **msgspec.structs.asdict(filters),
    )


@unprepared_query(f"""
    SELECT {_O_COLUMNS} FROM observations o
     WHERE o.team_id = %(team_id)s AND {LIVE_O} AND {_IN_SCOPE}
     ORDER BY o.importance DESC, o.updated_at DESC, o.id DESC LIMIT %(limit)s
    """)
async def most_important(conn: Conn, team_id: UUID, project_ids: Sequence[UUID], limit: int) -> list[Observation]:
    """The most important of these projects and of what the team shares; of equals the last changed first."""
    ...


@unprepared_query(f"""
    SELECT s.id, s.project_id, s.left_id, s.right_id, s.similarity, s.status, s.created_at, s.resolved_at
    {_SUGGESTIONS}
     ORDER BY s.similarity DESC, s.id DESC LIMIT %(limit)s OFFSET %(offset)s
    """)
async def suggestions(
    conn: Conn, team_id: UUID, *, project_id: UUID | None, status: SuggestionStatus, limit: int, offset: int
) -> list[model.MemorySuggestion]:
    """The most similar first."""
    ...


@unprepared_query(f"SELECT count(*) {_SUGGESTIONS}")
async def count_suggestions(conn: Conn, team_id: UUID, *, project_id: UUID | None, status: SuggestionStatus) -> int: ...


@unprepared_query(f"""
    SELECT {LABEL} AS label, o.scope, coalesce(o.agent, 'unknown') AS agent, count(*) AS memory_count,
           count(*) FILTER (WHERE o.expires_at IS NOT NULL) AS short_term_count,
           count(*) FILTER (WHERE o.expires_at < now() + interval '1 hour') AS expiring_count
      FROM observations o
     WHERE o.team_id = %(team_id)s AND {LIVE_O} AND {IN_REACH_O}
     GROUP BY 1, 2, 3
    """)
async def label_counts(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[model.LabelCount]: ...


@unprepared_query(f"""
    SELECT coalesce(sum({_TOKENS}), 0)::bigint AS tokens_stored,
           coalesce(sum({_TOKENS} * o.access_count), 0)::bigint AS tokens_saved,
           coalesce(sum(o.access_count), 0)::bigint AS hits, count(*) AS memory_count,
           count(*) FILTER (WHERE o.access_count > 0) AS read_count
      FROM observations o
     WHERE o.team_id = %(team_id)s AND {LIVE_O} AND {IN_REACH_O}
    """)
async def usage_totals(conn: Conn, team_id: UUID, project_id: UUID | None) -> model.UsageTotals: ...


@unprepared_query(f"""
    SELECT {_O_COLUMNS} FROM observations o
     WHERE o.team_id = %(team_id)s AND {LIVE_O} AND {IN_REACH_O} AND o.access_count > 0
     ORDER BY o.access_count DESC, o.id DESC LIMIT %(limit)s
    """)
async def top_read(conn: Conn, team_id: UUID, project_id: UUID | None, limit: int) -> list[Observation]:
    """Those that were read most often."""
    ...


@unprepared_query(f"""
    SELECT coalesce(o.agent, 'unknown') AS agent, sum({_TOKENS})::bigint AS tokens
      FROM observations o
     WHERE o.team_id = %(team_id)s AND {LIVE_O} AND {IN_REACH_O}
     GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(limit)s
    """)
async def tokens_by_agent(conn: Conn, team_id: UUID, project_id: UUID | None, limit: int) -> list[model.AgentTokens]: ...


# Days of UTC on which nothing happened are left out.
@unprepared_query(f"""
    SELECT day AS date, sum(created)::bigint AS created, sum(hits)::bigint AS hits
      FROM (SELECT (o.created_at AT TIME ZONE 'UTC')::date AS day, 1 AS created, 0 AS hits
              FROM observations o
             WHERE o.team_id = %(team_id)s AND {LIVE_O} AND {IN_REACH_O} AND o.created_at > now() - make_interval(days => %(days)s)
             UNION ALL
            SELECT (t.created_at AT TIME ZONE 'UTC')::date, 0, t.hit_count
              FROM memory_telemetry t
             WHERE t.team_id = %(team_id)s AND t.event_type = 'recall_hit'
               AND {_T_IN_REACH}
               AND t.created_at > now() - make_interval(days => %(days)s)) events
     GROUP BY day ORDER BY day
    """)
async def usage_days(conn: Conn, team_id: UUID, project_id: UUID | None, days: int) -> list[model.UsageDay]:
    """The last so many days, the first of them first."""
    ...


async def record(conn: Conn, team_id: UUID, events: Sequence[model.TelemetryEvent]) -> None:
    """Store the events."""
    await RECORD.run(conn, team_id=team_id, rows=Jsonb(list(events)))


async def funnel(conn: Conn, team_id: UUID, within: model.FunnelRange) -> model.FunnelCounts:
    return await FUNNEL.one(conn, team_id=team_id, **_of(within))


async def funnel_days(conn: Conn, team_id: UUID, within: model.FunnelRange) -> list[model.FunnelDay]:
    """The days with events, the first of them first."""
    return await FUNNEL_DAYS.all(conn, team_id=team_id, **_of(within))


async def funnel_agents(conn: Conn, team_id: UUID, within: model.FunnelRange, limit: int) -> list[model.FunnelGroup]:
    return await FUNNEL_AGENTS.all(conn, team_id=team_id, limit=limit, **_of(within))


async def funnel_projects(conn: Conn, team_id: UUID, within: model.FunnelRange, limit: int) -> list[model.FunnelGroup]:
    return await FUNNEL_PROJECTS.all(conn, team_id=team_id, limit=limit, **_of(within))


@unprepared_query("""
    DELETE FROM memory_telemetry
     WHERE team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid
            OR project_id IN (SELECT id FROM projects WHERE joined_to = %(project_id)s::uuid AND team_id = %(team_id)s))
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete the events of the project, or without one of the team; returns their number."""
    ...


def _of(within: model.FunnelRange) -> dict[str, object]:
    return msgspec.structs.asdict(within)
