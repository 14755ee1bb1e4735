"""All SQL of provider calls, pauses, and spending. Triggers of generation_runs write the sums; days are UTC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import LiteralString
from uuid import UUID

from cmserver.base.sql import Conn, Query, RowCount, query, unprepared_query
from cmserver.base.text import storable
from cmserver.models.budgets.model import Period
from cmserver.models.calls.model import (
    BudgetStatus,
    ModelHealth,
    Pause,
    PendingCalls,
    SpendingRow,
    SpendingTotals,
    StoredAnswer,
)
from cmserver.models.providers.model import Completion, ProviderError

OWNS = {"generation_runs", "provider_pauses", "generation_spending"}

_PAUSE_COLUMNS: LiteralString = (
    "provider, reason, message, paused_at, until_at, greatest(extract(epoch FROM until_at - now()), 0)::float8 AS seconds_left"
)
_COUNTS: tuple[LiteralString, ...] = (
    "calls", "failed_calls", "unpriced_calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
)  # fmt: skip
_SPENDING_SUMS: LiteralString = (
    ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in _COUNTS) + ", coalesce(sum(cost_usd), 0) AS cost_usd"
)

# The run exists already when the connection broke during an earlier attempt to insert it.
BEGIN_RUN = Query(
    int,
    """
    INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status,
                                 input_tokens, output_tokens, cost_usd)
    VALUES (%(id)s, %(team_id)s, %(project_id)s, %(lane)s, %(claim)s, %(kind)s, %(provider)s, %(model)s, %(job_ids)s, 'asked',
            %(input_tokens)s, %(output_tokens)s, %(cost_usd)s)
    ON CONFLICT (id) DO NOTHING
    """,
)

# A lost call may still be finished by its worker. Without known usage, the estimate stays.
FINISH_RUN = Query(
    int,
    """
    UPDATE generation_runs
       SET status = %(status)s, model = coalesce(%(model)s, model),
           error_class = %(error_class)s, error_message = %(error_message)s, answer = %(answer)s,
           input_tokens = CASE WHEN %(has_usage)s THEN %(input_tokens)s ELSE input_tokens END,
           output_tokens = CASE WHEN %(has_usage)s THEN %(output_tokens)s ELSE output_tokens END,
           cache_read_tokens = %(cache_read_tokens)s, cache_write_tokens = %(cache_write_tokens)s,
           cost_usd = CASE WHEN %(has_usage)s THEN %(cost_usd)s ELSE cost_usd END,
           latency_ms = %(latency_ms)s
     WHERE id = %(id)s AND status IN ('asked', 'lost')
    """,
)

# Mark the pending calls whose claim has lost its lane; return their number. Their tokens stay an estimate.
LOSE_RUNS = Query(
    int,
    """
    UPDATE generation_runs r SET status = 'lost'
     WHERE r.status = 'asked'
       AND NOT EXISTS (SELECT FROM generation_lanes l WHERE l.lane = r.lane AND l.claim = r.claim)
    """,
)

PAUSES = Query(Pause, f"SELECT {_PAUSE_COLUMNS} FROM provider_pauses ORDER BY provider")

END_PAUSE = Query(str, "DELETE FROM provider_pauses WHERE provider = %(provider)s RETURNING provider")


# A call answered by another model than was requested leaves a row without calls.
SPENDING_ROWS = Query(
    SpendingRow,
    f"""
    SELECT s.*, p.canonical_id AS project
      FROM (SELECT CASE WHEN %(by_day)s::bool THEN day END AS day,
                   CASE WHEN %(by_project)s::bool THEN project_id END AS project_id,
                   CASE WHEN %(by_model)s::bool THEN provider END AS provider, CASE WHEN %(by_model)s::bool THEN model END AS model,
                   {_SPENDING_SUMS}
              FROM generation_spending
             WHERE team_id = %(team_id)s
               AND day >= coalesce((now() AT TIME ZONE 'UTC')::date - %(days)s::int + 1,
                                   date_trunc('month', now() AT TIME ZONE 'UTC')::date)
               AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s)
             GROUP BY 1, 2, 3, 4) s
      LEFT JOIN projects p ON p.team_id = %(team_id)s AND p.id = s.project_id
     WHERE s.calls > 0
     ORDER BY s.day DESC, s.cost_usd DESC, s.input_tokens + s.output_tokens DESC, project, s.project_id, s.provider, s.model
     LIMIT %(limit)s
    """,
    prepare=False,
)


async def begin_run(
    conn: Conn,
    *,
    run_id: UUID,
    team_id: UUID,
    project_id: UUID,
    lane: UUID,
    claim: int,
    kind: str,
    provider: str,
    job_ids: Sequence[UUID],
    estimate: Completion,
    cost_usd: Decimal | None,
) -> None:
    """Record a call before it is made, with its estimated tokens and cost."""
    await BEGIN_RUN.run(
        conn,
        id=run_id,
        team_id=team_id,
        project_id=project_id,
        lane=lane,
        claim=claim,
        kind=kind,
        provider=provider,
        model=estimate.model,
        job_ids=list(job_ids),
        input_tokens=estimate.input_tokens,
        output_tokens=estimate.output_tokens,
        cost_usd=cost_usd,
    )


async def finish_run(
    conn: Conn,
    run_id: UUID,
    status: str,
    *,
    latency_ms: int,
    completion: Completion | None = None,
    cost_usd: Decimal | None = None,
    error: ProviderError | None = None,
) -> None:
    """Record a call's result and usage. Without a completion the usage is 0, or stays an estimate if the call is `perhaps_paid`."""
    cost = completion or Completion(text="", model="")
    await FINISH_RUN.run(
        conn,
        id=run_id,
        status=status,
        model=cost.model or None,
        error_class=error.kind.value if error else None,
        error_message=str(error)[:2000] if error else None,
        answer=completion and storable(completion.text),
        has_usage=completion is not None or error is None or not error.perhaps_paid,
        input_tokens=cost.input_tokens,
        output_tokens=cost.output_tokens,
        cache_read_tokens=cost.cache_read_tokens,
        cache_write_tokens=cost.cache_write_tokens,
        cost_usd=cost_usd,
        latency_ms=latency_ms,
    )


@query("""
    SELECT id, job_ids, answer, provider, model, input_tokens, output_tokens FROM generation_runs
     WHERE id = ANY(%(run_ids)s) AND status = 'answered' AND answer IS NOT NULL
    """)
async def stored_answers(conn: Conn, run_ids: Sequence[UUID]) -> list[StoredAnswer]: ...


# An answer of the same provider says more of whether an error is over than that of the next one in the chain.
@unprepared_query("""
    WITH recent AS MATERIALIZED (
        SELECT r.provider, r.model, r.status, r.error_class, r.error_message, r.created_at,
               r.status IN ('answered', 'applied') AS is_usable
          FROM teams t JOIN generation_runs r ON r.team_id = t.id AND r.created_at > now() - interval '24 hours'
         WHERE (%(team_id)s::uuid IS NULL OR t.id = %(team_id)s::uuid)
           AND (%(project_id)s::uuid IS NULL OR r.project_id = %(project_id)s::uuid)
    ), failed AS (
        SELECT * FROM recent WHERE status IN ('failed', 'unusable') ORDER BY created_at DESC LIMIT 1
    )
    SELECT a.*, s.*,
           (SELECT jsonb_build_object(
                       'provider', f.provider, 'model', f.model, 'reason', coalesce(f.error_class, f.status),
                       'message', coalesce(f.error_message, ''), 'at', f.created_at,
                       'answered_by', (SELECT n.provider FROM recent n WHERE n.is_usable AND n.created_at > f.created_at
                                        ORDER BY n.provider = f.provider DESC, n.created_at DESC LIMIT 1))
              FROM failed f) AS last_error
      FROM (SELECT count(*) FILTER (WHERE is_usable) AS usable,
                   count(*) FILTER (WHERE status = 'unusable'
                                       OR (status = 'failed' AND error_class IN ('refused', 'unusable_answer'))) AS unusable,
                   count(*) FILTER (WHERE status = 'failed' AND error_class NOT IN ('refused', 'unusable_answer')) AS unanswered,
                   coalesce(array_agg(DISTINCT provider), '{}') AS providers
              FROM recent) a
     CROSS JOIN (
           SELECT coalesce(sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens), 0)::bigint AS tokens_today,
                  coalesce(sum(cost_usd), 0) AS cost_usd_today, coalesce(sum(unpriced_calls), 0)::bigint AS unpriced_calls_today
             FROM generation_spending
            WHERE day = (now() AT TIME ZONE 'UTC')::date AND (%(team_id)s::uuid IS NULL OR team_id = %(team_id)s::uuid)
              AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)) s
    """)
async def model_health(conn: Conn, team_id: UUID | None, project_id: UUID | None) -> ModelHealth:
    """How the models did for the team or its project, or for all teams of the server without one."""
    ...


@query("""
    UPDATE generation_runs
       SET status = %(status)s, error_class = %(error_class)s, error_message = %(error_message)s,
           answer = CASE WHEN %(status)s::text = 'applied' THEN NULL ELSE answer END,
           applied_at = CASE WHEN %(status)s::text = 'applied' THEN now() END
     WHERE id = ANY(%(run_ids)s) AND status = 'answered'
    """)
async def end_runs(
    conn: Conn, run_ids: Sequence[UUID], status: str, *, error_class: str | None = None, error_message: str | None = None
) -> None: ...


# An active pause is not extended, so that workers refused at the same time start only one.
@query(f"""
    INSERT INTO provider_pauses AS p (provider, reason, message, until_at)
    VALUES (%(provider)s, %(reason)s, %(message)s, now() + make_interval(secs => %(seconds)s))
    ON CONFLICT (provider) DO UPDATE
       SET reason = excluded.reason, message = excluded.message, times = p.times + 1,
           until_at = greatest(p.until_at, now() + make_interval(
               secs => greatest(%(seconds)s, least(%(seconds)s * 2 ^ least(p.times, 6), 3600))))
     WHERE p.until_at <= now()
    RETURNING {_PAUSE_COLUMNS}
    """)
async def pause_provider(conn: Conn, provider: str, reason: str, message: str, seconds: float) -> Pause | None:
    """Start a pause for all workers; each in a row is twice as long, up to an hour. None while an earlier one lasts."""
    ...


async def end_pause(conn: Conn, provider: str) -> bool:
    return await END_PAUSE.first(conn, provider=provider) is not None


@unprepared_query("""
    DELETE FROM generation_runs
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase_runs(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete all runs of the project, or of the team without one; return their number."""
    ...


@unprepared_query(f"""
    SELECT {_SPENDING_SUMS}
      FROM generation_spending
     WHERE team_id = %(team_id)s AND day >= %(since)s::date AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s)
    """)
async def spending_totals(conn: Conn, team_id: UUID, *, since: date, project_id: UUID | None) -> SpendingTotals:
    """Spending of the team, or of one of its projects, since that day."""
    ...


async def spending_rows(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None,
    days: int | None,
    by_project: bool,
    by_model: bool,
    by_day: bool,
    limit: int,
) -> list[SpendingRow]:
    """Spending of the last `days`, today included, or of the month so far: newest day first, then by cost."""
    groups = {"by_project": by_project, "by_model": by_model, "by_day": by_day}
    return await SPENDING_ROWS.all(conn, team_id=team_id, project_id=project_id, days=days, limit=limit, **groups)


@unprepared_query("""
    SELECT b.id, b.team_id, b.project_id, p.canonical_id AS project, b.period, b.max_tokens, b.max_usd, s.spent_tokens, s.spent_usd,
           s.paid_calls, t.resets_at, extract(epoch FROM t.resets_at - now())::float8 AS seconds_left,
           coalesce(b.warned_at >= t.since, false) AS warned, coalesce(b.exhausted_at >= t.since, false) AS exhaustion_reported
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
    """)
async def budget_statuses(conn: Conn, team_id: UUID, *, project_id: UUID | None) -> list[BudgetStatus]:
    """All budgets of the team, or those that count the calls of one project."""
    ...


@query("""
    SELECT project_id, count(*) AS calls, sum(input_tokens + output_tokens)::bigint AS tokens,
           coalesce(sum(cost_usd), 0) AS cost_usd
      FROM generation_runs WHERE status = 'asked' AND team_id = %(team_id)s GROUP BY project_id
    """)
async def pending_calls(conn: Conn, team_id: UUID) -> list[PendingCalls]:
    """Estimates of the team's pending calls, by project."""
    ...


# By an index of their own.
@unprepared_query("""
    SELECT coalesce(sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens), 0)::bigint
      FROM generation_runs
     WHERE team_id = %(team_id)s AND kind IN ('guard', 'derive')
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND created_at >= date_trunc(%(period)s, now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
    """)
async def steward_tokens(conn: Conn, team_id: UUID, project_id: UUID | None, period: Period) -> int:
    """The tokens of the steward's calls in the present day or month (UTC); a pending call counts with its estimate."""
    ...
