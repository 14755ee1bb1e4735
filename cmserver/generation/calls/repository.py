"""All SQL on what was asked of providers: each call with its answer and cost, and the pauses of those that refuse."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.generation.model import Claim, Pause, Spent, StoredAnswer
from cmserver.providers.model import Completion, ProviderError

OWNS = {"generation_runs", "provider_pauses"}

INSERT_RUN = Query(
    UUID,
    """
    INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status,
                                 error_class, error_message, answer, input_tokens, output_tokens, cache_read_tokens,
                                 cache_write_tokens, latency_ms)
    VALUES (%(id)s, %(team_id)s, %(project_id)s, %(lane)s, %(claim)s, %(kind)s, %(provider)s, %(model)s, %(job_ids)s, %(status)s,
            %(error_class)s, %(error_message)s, %(answer)s, %(input_tokens)s, %(output_tokens)s, %(cache_read_tokens)s,
            %(cache_write_tokens)s, %(latency_ms)s)
    RETURNING id
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

PAUSE_PROVIDER = Query(
    Pause,
    """
    INSERT INTO provider_pauses AS p (provider, reason, message, until_at)
    VALUES (%(provider)s, %(reason)s, %(message)s, now() + make_interval(secs => %(seconds)s))
    ON CONFLICT (provider) DO UPDATE
       SET reason = excluded.reason, message = excluded.message, times = p.times + 1,
           until_at = greatest(p.until_at, now() + make_interval(
               secs => greatest(%(seconds)s, least(%(seconds)s * 2 ^ least(p.times, 6), 3600))))
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

SPENT = Query(
    Spent,
    """
    SELECT count(*) AS calls, coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
           coalesce(sum(output_tokens), 0)::bigint AS output_tokens
      FROM generation_runs
     WHERE team_id = %(team_id)s AND created_at >= %(since)s
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s)
    """,
)

END_PAUSE = Query(str, "DELETE FROM provider_pauses WHERE provider = %(provider)s RETURNING provider")


async def insert_run(
    conn: Conn,
    *,
    run_id: UUID,
    claim: Claim,
    kind: str,
    provider: str,
    job_ids: Sequence[UUID],
    latency_ms: int,
    completion: Completion | None,
    error: ProviderError | None,
) -> None:
    """One provider call: either its completion or its error is given."""
    cost = completion or Completion(text="", model="")
    await INSERT_RUN.one(
        conn,
        id=run_id,
        team_id=claim.team_id,
        project_id=claim.project_id,
        lane=claim.lane,
        claim=claim.claim,
        kind=kind,
        provider=provider,
        model=cost.model,
        job_ids=list(job_ids),
        status="failed" if error else "answered",
        error_class=error.kind.value if error else None,
        error_message=str(error)[:2000] if error else None,
        answer=None if error else cost.text.replace("\x00", "\ufffd"),
        input_tokens=cost.input_tokens,
        output_tokens=cost.output_tokens,
        cache_read_tokens=cost.cache_read_tokens,
        cache_write_tokens=cost.cache_write_tokens,
        latency_ms=latency_ms,
    )


async def stored_answers(conn: Conn, run_ids: Sequence[UUID]) -> list[StoredAnswer]:
    return await STORED_ANSWERS.all(conn, run_ids=list(run_ids))


async def end_runs(
    conn: Conn, run_ids: Sequence[UUID], status: str, *, error_class: str | None = None, error_message: str | None = None
) -> None:
    await END_RUN.run(conn, run_ids=list(run_ids), status=status, error_class=error_class, error_message=error_message)


async def pause_provider(conn: Conn, provider: str, reason: str, message: str, seconds: float) -> Pause:
    """Stop calls for everybody; each pause in a row is twice as long, up to an hour."""
    return await PAUSE_PROVIDER.one(conn, provider=provider, reason=reason, message=message, seconds=seconds)


async def pauses(conn: Conn) -> list[Pause]:
    return await PAUSES.all(conn)


async def end_pause(conn: Conn, provider: str) -> bool:
    return await END_PAUSE.first(conn, provider=provider) is not None


async def spent(conn: Conn, team_id: UUID, *, since: datetime, project_id: UUID | None) -> Spent:
    """By the team since then; or by one of its projects."""
    return await SPENT.one(conn, team_id=team_id, since=since, project_id=project_id)
