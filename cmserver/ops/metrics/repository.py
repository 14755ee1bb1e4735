"""The numbers of `GET /metrics` that the database knows: of all teams, by the owner's connection. Each statement reads few rows."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from cmserver.base.sql import Query


class ProviderTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent on a provider's model since the installation began, by all teams."""

    provider: str
    model: str
    calls: int
    failed_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal


class BudgetShare(msgspec.Struct, frozen=True, kw_only=True):
    """Which share of a budget is spent in its present period, of the cap that is nearer; 1 and more is all of it."""

    team: str
    project: str | None
    period: str
    spent: float


class LaneNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """How many lanes wait for what, of all teams. `oldest_due_seconds` is how long the longest waiting due lane has waited."""

    due: int
    claimed: int
    held: int
    oldest_due_seconds: float


class JobCount(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a team that were made for the same and are in a state."""

    team: str
    source: str
    state: str
    jobs: int


PROVIDER_SPENDING = Query(
    ProviderTotals,
    """
    SELECT provider, model, sum(calls)::bigint AS calls, sum(failed_calls)::bigint AS failed_calls,
           sum(input_tokens + cache_read_tokens + cache_write_tokens)::bigint AS input_tokens,
           sum(output_tokens)::bigint AS output_tokens, sum(cost_usd) AS cost_usd
      FROM generation_spending GROUP BY provider, model ORDER BY provider, model
    """,
)

BUDGET_SHARES = Query(
    BudgetShare,
    """
    SELECT t.name AS team, p.canonical_id AS project, b.period,
           greatest(coalesce(s.tokens / b.max_tokens, 0), coalesce(s.usd / b.max_usd, 0))::float8 AS spent
      FROM budgets b
      JOIN teams t ON t.id = b.team_id
      LEFT JOIN projects p ON p.team_id = b.team_id AND p.id = b.project_id
     CROSS JOIN LATERAL (
           SELECT coalesce(sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens), 0) AS tokens,
                  coalesce(sum(cost_usd), 0) AS usd
             FROM generation_spending
            WHERE team_id = b.team_id AND day >= date_trunc(b.period, now() AT TIME ZONE 'UTC')::date
              AND (b.project_id IS NULL OR project_id = b.project_id)) s
     ORDER BY t.name, p.canonical_id NULLS FIRST, b.period
    """,
)

LANE_NUMBERS = Query(
    LaneNumbers,
    """
    SELECT count(*) FILTER (WHERE worker_id IS NULL AND due_at <= now()) AS due,
           count(*) FILTER (WHERE worker_id IS NOT NULL) AS claimed,
           count(*) FILTER (WHERE held_until > now()) AS held,
           coalesce(extract(epoch FROM now() - min(due_at) FILTER (WHERE worker_id IS NULL AND due_at <= now())), 0)::float8
               AS oldest_due_seconds
      FROM generation_lanes
    """,
)


# All private places count as one, so that nothing tells of each.
# `> '-infinity'` is true of every row and makes the partial index of a team's jobs usable.
JOB_COUNTS = Query(
    JobCount,
    """
    SELECT CASE WHEN t.private_of IS NULL THEN t.name ELSE 'private' END AS team,
           j.source_type AS source, j.status AS state, count(*) AS jobs
      FROM teams t CROSS JOIN LATERAL (
           SELECT source_type, status FROM observation_generation_jobs
            WHERE team_id = t.id AND phase = 'open' AND created_at > '-infinity'
            UNION ALL
           SELECT source_type, status FROM observation_generation_jobs
            WHERE team_id = t.id AND phase = 'failed' AND created_at > '-infinity' AND created_at > now() - interval '24 hours') j
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    """,
)
