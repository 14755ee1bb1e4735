"""All SQL on what was spent. The sums are written by the triggers of generation_runs alone; days are those of UTC."""

from __future__ import annotations

from datetime import date
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.generation.spending.model import Row, Spent, Standing, UnderWay

OWNS = {"generation_spending"}

SPENT = Query(
    Spent,
    """
    SELECT coalesce(sum(calls), 0)::bigint AS calls, coalesce(sum(failed_calls), 0)::bigint AS failed_calls,
           coalesce(sum(unpriced_calls), 0)::bigint AS unpriced_calls, coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
           coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
           coalesce(sum(cache_read_tokens), 0)::bigint AS cache_read_tokens,
           coalesce(sum(cache_write_tokens), 0)::bigint AS cache_write_tokens, coalesce(sum(cost_usd), 0) AS cost_usd
      FROM generation_spending
     WHERE team_id = %(team_id)s AND day >= %(since)s::date AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s)
    """,
    prepare=False,
)

# What was asked under another name than it was answered leaves a row without calls.
ROWS = Query(
    Row,
    """
    SELECT s.day, s.project_id, p.canonical_id AS project, s.provider, s.model, s.calls, s.failed_calls, s.unpriced_calls,
           s.input_tokens, s.output_tokens, s.cache_read_tokens, s.cache_write_tokens, s.cost_usd
      FROM (SELECT CASE WHEN %(by_day)s::bool THEN day END AS day,
                   CASE WHEN %(by_project)s::bool THEN project_id END AS project_id,
                   CASE WHEN %(by_model)s::bool THEN provider END AS provider, CASE WHEN %(by_model)s::bool THEN model END AS model,
                   sum(calls)::bigint AS calls, sum(failed_calls)::bigint AS failed_calls,
                   sum(unpriced_calls)::bigint AS unpriced_calls, sum(input_tokens)::bigint AS input_tokens,
                   sum(output_tokens)::bigint AS output_tokens, sum(cache_read_tokens)::bigint AS cache_read_tokens,
                   sum(cache_write_tokens)::bigint AS cache_write_tokens, sum(cost_usd) AS cost_usd
              FROM generation_spending
             WHERE team_id = %(team_id)s
               AND day >= coalesce((now() AT TIME ZONE 'UTC')::date - %(days)s::int + 1,
                                   date_trunc('month', now() AT TIME ZONE 'UTC')::date)
               AND (%(only)s::uuid IS NULL OR project_id = %(only)s)
             GROUP BY 1, 2, 3, 4) s
      LEFT JOIN projects p ON p.team_id = %(team_id)s AND p.id = s.project_id
     WHERE s.calls > 0
     ORDER BY s.day DESC, s.cost_usd DESC, s.input_tokens + s.output_tokens DESC, project, s.project_id, s.provider, s.model
     LIMIT %(limit)s
    """,
    prepare=False,
)

STANDINGS = Query(
    Standing,
    """
    SELECT b.id, b.team_id, b.project_id, p.canonical_id AS project, b.period, b.max_tokens, b.max_usd, s.spent_tokens, s.spent_usd,
           s.paid_calls, t.resets_at, extract(epoch FROM t.resets_at - now())::float8 AS seconds_left,
           coalesce(b.warned_at >= t.since, false) AS warned, coalesce(b.exhausted_at >= t.since, false) AS told_exhausted
      FROM budgets b
      LEFT JOIN projects p ON p.team_id = b.team_id AND p.id = b.project_id
     CROSS JOIN LATERAL (
           SELECT date_trunc(b.period, now() AT TIME ZONE 'UTC')::date AS first_day,
                  date_trunc(b.period, now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS since,
                  (date_trunc(b.period, now() AT TIME ZONE 'UTC') + ('1 ' || b.period)::interval) AT TIME ZONE 'UTC' AS resets_at) t
     CROSS JOIN LATERAL (
           SELECT coalesce(sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens), 0)::bigint AS spent_tokens,
                  coalesce(sum(cost_usd), 0) AS spent_usd,
                  coalesce(sum(calls - failed_calls) FILTER (WHERE input_tokens + output_tokens > 0), 0)::bigint AS paid_calls
             FROM generation_spending
            WHERE team_id = %(team_id)s AND day >= t.first_day AND (b.project_id IS NULL OR project_id = b.project_id)) s
     WHERE b.team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR b.project_id IS NULL OR b.project_id = %(project_id)s)
     ORDER BY p.canonical_id NULLS FIRST, b.period, b.id
    """,
    prepare=False,
)


UNDER_WAY = Query(
    UnderWay,
    """
    SELECT project_id, count(*) AS calls, sum(input_tokens + output_tokens)::bigint AS tokens,
           coalesce(sum(cost_usd), 0) AS cost_usd
      FROM generation_runs WHERE status = 'asked' AND team_id = %(team_id)s GROUP BY project_id
    """,
)


async def spent(conn: Conn, team_id: UUID, *, since: date, project_id: UUID | None) -> Spent:
    """By the team since that day; or by one of its projects."""
    return await SPENT.one(conn, team_id=team_id, since=since, project_id=project_id)


async def rows(
    conn: Conn, team_id: UUID, *, only: UUID | None, days: int | None, by_project: bool, by_model: bool, by_day: bool, limit: int
) -> list[Row]:
    """Of the last days, today among them, or of the month so far: newest day first, then what cost the most."""
    return await ROWS.all(
        conn, team_id=team_id, only=only, days=days, by_project=by_project, by_model=by_model, by_day=by_day, limit=limit
    )


async def standings(conn: Conn, team_id: UUID, *, project_id: UUID | None) -> list[Standing]:
    """All budgets of the team; or those under which the calls of one project fall."""
    return await STANDINGS.all(conn, team_id=team_id, project_id=project_id)


async def under_way(conn: Conn, team_id: UUID) -> list[UnderWay]:
    """By project; a call stays under way until it is known how it ended, or that its worker is dead."""
    return await UNDER_WAY.all(conn, team_id=team_id)
