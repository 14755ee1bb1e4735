"""All SQL on what was asked of providers: each call with its answer and cost, and the pauses of those that refuse."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.base.text import storable
from cmserver.generation.model import Claim, Pause, StoredAnswer
from cmserver.providers.model import Completion, ProviderError

OWNS = {"generation_runs", "provider_pauses"}

# It is there when the connection broke just as it was written: whoever wrote it tries again.
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

# What is lost may still be heard of: its worker lives on, and knows what was paid. What nobody has heard stays as it was thought.
FINISH_RUN = Query(
    int,
    """
    UPDATE generation_runs
       SET status = %(status)s, model = coalesce(%(model)s, model),
           error_class = %(error_class)s, error_message = %(error_message)s, answer = %(answer)s,
           input_tokens = CASE WHEN %(is_known)s THEN %(input_tokens)s ELSE input_tokens END,
           output_tokens = CASE WHEN %(is_known)s THEN %(output_tokens)s ELSE output_tokens END,
           cache_read_tokens = %(cache_read_tokens)s, cache_write_tokens = %(cache_write_tokens)s,
           cost_usd = CASE WHEN %(is_known)s THEN %(cost_usd)s ELSE cost_usd END,
           latency_ms = %(latency_ms)s
     WHERE id = %(id)s AND status IN ('asked', 'lost')
    """,
)

LOSE_RUNS = Query(
    int,
    """
    UPDATE generation_runs r SET status = 'lost'
     WHERE r.status = 'asked'
       AND NOT EXISTS (SELECT FROM generation_lanes l WHERE l.lane = r.lane AND l.claim = r.claim)
    """,
)

STORED_ANSWERS = Query(
    StoredAnswer,
    """
    SELECT id, job_ids, answer, provider, model, input_tokens, output_tokens FROM generation_runs
     WHERE id = ANY(%(run_ids)s) AND status = 'answered' AND answer IS NOT NULL
    """,
)

END_RUN = Query(
    int,
    """
    UPDATE generation_runs
       SET status = %(status)s, error_class = %(error_class)s, error_message = %(error_message)s,
           answer = CASE WHEN %(status)s::text = 'applied' THEN NULL ELSE answer END,
           applied_at = CASE WHEN %(status)s::text = 'applied' THEN now() END
     WHERE id = ANY(%(run_ids)s) AND status = 'answered'
    """,
)

# A pause that lasts is left alone: workers that are refused at the same time make one of it.
PAUSE_PROVIDER = Query(
    Pause,
    """
    INSERT INTO provider_pauses AS p (provider, reason, message, until_at)
    VALUES (%(provider)s, %(reason)s, %(message)s, now() + make_interval(secs => %(seconds)s))
    ON CONFLICT (provider) DO UPDATE
       SET reason = excluded.reason, message = excluded.message, times = p.times + 1,
           until_at = greatest(p.until_at, now() + make_interval(
               secs => greatest(%(seconds)s, least(%(seconds)s * 2 ^ least(p.times, 6), 3600))))
     WHERE p.until_at <= now()
    RETURNING provider, reason, message, paused_at, until_at, extract(epoch FROM until_at - now())::float8 AS seconds_left
    """,
)

PAUSES = Query(
    Pause,
    """
    SELECT provider, reason, message, paused_at, until_at,
           greatest(extract(epoch FROM until_at - now()), 0)::float8 AS seconds_left
      FROM provider_pauses ORDER BY provider
    """,
)

END_PAUSE = Query(str, "DELETE FROM provider_pauses WHERE provider = %(provider)s RETURNING provider")


async def begin_run(
    conn: Conn,
    *,
    run_id: UUID,
    claim: Claim,
    kind: str,
    provider: str,
    job_ids: Sequence[UUID],
    estimate: Completion,
    cost_usd: Decimal | None,
) -> None:
    """A call that is about to be made, with the tokens and the money that it is thought to take."""
    await BEGIN_RUN.run(
        conn,
        id=run_id,
        team_id=claim.team_id,
        project_id=claim.project_id,
        lane=claim.lane,
        claim=claim.claim,
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
    """How a call ended, and what it took. Without a completion nothing was paid, or what is `perhaps_paid` stays an estimate."""
    cost = completion or Completion(text="", model="")
    await FINISH_RUN.run(
        conn,
        id=run_id,
        status=status,
        model=cost.model or None,
        error_class=error.kind.value if error else None,
        error_message=str(error)[:2000] if error else None,
        answer=completion and storable(completion.text),
        is_known=completion is not None or error is None or not error.perhaps_paid,
        input_tokens=cost.input_tokens,
        output_tokens=cost.output_tokens,
        cache_read_tokens=cost.cache_read_tokens,
        cache_write_tokens=cost.cache_write_tokens,
        cost_usd=cost_usd,
        latency_ms=latency_ms,
    )


async def lose_runs(conn: Conn) -> int:
    """Mark the calls whose batch has come to somebody else; how many. Their tokens stay an estimate."""
    return await LOSE_RUNS.run(conn)


async def stored_answers(conn: Conn, run_ids: Sequence[UUID]) -> list[StoredAnswer]:
    return await STORED_ANSWERS.all(conn, run_ids=list(run_ids))


async def end_runs(
    conn: Conn, run_ids: Sequence[UUID], status: str, *, error_class: str | None = None, error_message: str | None = None
) -> None:
    await END_RUN.run(conn, run_ids=list(run_ids), status=status, error_class=error_class, error_message=error_message)


async def pause_provider(conn: Conn, provider: str, reason: str, message: str, seconds: float) -> Pause | None:
    """Stop calls for everybody; each pause in a row is twice as long, up to an hour. None while an earlier one lasts."""
    return await PAUSE_PROVIDER.first(conn, provider=provider, reason=reason, message=message, seconds=seconds)


async def pauses(conn: Conn) -> list[Pause]:
    return await PAUSES.all(conn)


async def end_pause(conn: Conn, provider: str) -> bool:
    return await END_PAUSE.first(conn, provider=provider) is not None
