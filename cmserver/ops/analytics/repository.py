"""SQL that counts what was stored, shown and opened. Owns no table."""

from __future__ import annotations

from typing import LiteralString
from uuid import UUID

from cmserver.access.model import IN_REACH_O
from cmserver.base.sql import Conn, unprepared_query
from cmserver.ops.analytics.model import ProjectUsage, ShownDay, ShownGroup, ShownObservation, ShownTotals, StoredDay

OWNS: set[str] = set()

_SINCE: LiteralString = (
    "(date_trunc('day', now() AT TIME ZONE 'UTC') - make_interval(days => %(days)s::int - 1)) AT TIME ZONE 'UTC'"
)
_P_IN_REACH: LiteralString = "((%(project_id)s::uuid IS NULL AND NOT p.isolated) OR p.id = %(project_id)s::uuid)"
# By project, because the index of receipts begins with it.
_RECEIPTS: LiteralString = f"""
      FROM projects p
      JOIN context_injections c ON c.project_id = p.id AND c.team_id = p.team_id
       AND c.created_at > '-infinity' AND c.created_at >= {_SINCE}
     WHERE p.team_id = %(team_id)s AND {_P_IN_REACH}
"""
_LINES: LiteralString = "coalesce(sum(cardinality(c.numbers) + cardinality(c.summary_numbers)), 0)::bigint"


@unprepared_query(f"""
    SELECT (o.created_at AT TIME ZONE 'UTC')::date AS day, count(*) AS stored
      FROM observations o
     WHERE o.team_id = %(team_id)s AND o.created_at >= {_SINCE}
       AND {IN_REACH_O}
     GROUP BY 1 ORDER BY 1
    """)
async def stored_days(conn: Conn, team_id: UUID, project_id: UUID | None, days: int) -> list[StoredDay]:
    """Days (UTC) with new observations among the last `days`, the first of them first."""
    ...


@unprepared_query(f"""
    SELECT (c.created_at AT TIME ZONE 'UTC')::date AS day, count(*) AS receipts, {_LINES} AS lines,
           coalesce(sum(c.tokens), 0)::bigint AS tokens
    {_RECEIPTS} GROUP BY 1 ORDER BY 1
    """)
async def shown_days(conn: Conn, team_id: UUID, project_id: UUID | None, days: int) -> list[ShownDay]:
    """Days (UTC) on which anything was shown, the first of them first."""
    ...


@unprepared_query(f"""
    WITH shown AS MATERIALIZED (SELECT DISTINCT unnest(c.numbers || c.summary_numbers) AS number {_RECEIPTS})
    SELECT count(*) AS shown, count(*) FILTER (WHERE o.last_accessed_at >= {_SINCE}) AS opened
      FROM shown JOIN observations o ON o.team_id = %(team_id)s AND o.number = shown.number
    """)
async def shown_totals(conn: Conn, team_id: UUID, project_id: UUID | None, days: int) -> ShownTotals: ...


@unprepared_query(f"""
    SELECT coalesce(c.platform_source, 'unknown') AS agent, count(DISTINCT c.server_session_id) AS sessions,
           count(*) AS receipts, {_LINES} AS lines, coalesce(sum(c.tokens), 0)::bigint AS tokens
    {_RECEIPTS} GROUP BY 1 ORDER BY 4 DESC, 1 LIMIT %(limit)s
    """)
async def agents(conn: Conn, team_id: UUID, project_id: UUID | None, days: int, limit: int) -> list[ShownGroup]:
    """Agents by how much they were shown."""
    ...


@unprepared_query(f"""
    SELECT p.canonical_id AS project, coalesce(s.stored, 0) AS stored, r.sessions, r.lines, r.tokens
      FROM projects p
      LEFT JOIN (SELECT o.project_id, count(*) AS stored FROM observations o
                  WHERE o.team_id = %(team_id)s AND o.created_at >= {_SINCE} GROUP BY 1) s ON s.project_id = p.id
     CROSS JOIN LATERAL (
           SELECT count(DISTINCT c.server_session_id) AS sessions, {_LINES} AS lines,
                  coalesce(sum(c.tokens), 0)::bigint AS tokens
             FROM context_injections c
            WHERE c.project_id = p.id AND c.team_id = p.team_id AND c.created_at > '-infinity' AND c.created_at >= {_SINCE}) r
     WHERE p.team_id = %(team_id)s AND {_P_IN_REACH} AND coalesce(s.stored, 0) + r.lines > 0
     ORDER BY coalesce(s.stored, 0) + r.lines DESC, p.canonical_id LIMIT %(limit)s
    """)
async def projects(conn: Conn, team_id: UUID, project_id: UUID | None, days: int, limit: int) -> list[ProjectUsage]:
    """Projects with anything stored or shown, the most active first."""
    ...


@unprepared_query(f"""
    WITH shown AS MATERIALIZED (
        SELECT u.number, count(*) AS times
          FROM (SELECT unnest(c.numbers) AS number {_RECEIPTS}) u
         GROUP BY 1 ORDER BY 2 DESC, 1 DESC LIMIT %(limit)s
    )
    SELECT o.id, o.project_id, o.number, o.title, o.type, shown.times, o.access_count
      FROM shown JOIN observations o ON o.team_id = %(team_id)s AND o.number = shown.number
     WHERE o.superseded_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > now())
     ORDER BY shown.times DESC, o.number DESC
    """)
async def top_shown(conn: Conn, team_id: UUID, project_id: UUID | None, days: int, limit: int) -> list[ShownObservation]:
    """What was shown most often; what is not shown any more is left out."""
    ...
