"""All SQL of the steward's runs and events, and the figures made of them."""

from __future__ import annotations

from datetime import datetime
from typing import LiteralString
from uuid import UUID

from cmserver.access.model import IN_REACH_O
from cmserver.base.sql import Conn, Jsonb, Query, query, unprepared_query
from cmserver.steward import model as steward_model

OWNS = {"steward_runs"}

ADD = Query(
    int,
    """
    INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt, status, provider, model, prompt_tokens,
                              completion_tokens, input_snapshot, output_snapshot, input_hash, error_class, error_message,
                              created_at, completed_at, latency_ms)
    VALUES (%(id)s, %(team_id)s, %(project_id)s, %(job_id)s, %(job_type)s, %(attempt)s, %(status)s, %(provider)s, %(model)s,
            %(prompt_tokens)s, %(completion_tokens)s, %(input_snapshot)s, %(output_snapshot)s, %(input_hash)s, %(error_class)s,
            %(error_message)s, coalesce(%(began_at)s, now()), clock_timestamp(),
            greatest(0, extract(epoch FROM clock_timestamp() - coalesce(%(began_at)s, now())) * 1000)::integer)
    """,
)

_SELECT: LiteralString = """
    SELECT r.id, r.team_id, r.project_id, p.canonical_id AS project, coalesce(r.job_id, r.id) AS job_id, r.job_type,
           coalesce(j.status, 'succeeded') AS job_status, j.trigger_reason, r.attempt,
           r.provider, r.model, r.input_snapshot, r.output_snapshot, r.input_hash, r.prompt_tokens, r.completion_tokens,
           r.total_tokens, r.latency_ms, r.status, r.error_class, r.error_message, r.created_at, r.completed_at, r.undone_at,
           r.undone_by
      FROM steward_runs r
      LEFT JOIN steward_jobs j ON j.id = r.job_id AND j.team_id = r.team_id
      LEFT JOIN projects p ON p.id = r.project_id AND p.team_id = r.team_id
     WHERE r.team_id = %(team_id)s
"""


# The calls since the last that answered. When the time is over one call is tried: if it fails, it is the last one again.
BREAKER = Query(
    steward_model.Breaker,
    """
    WITH newest AS (
        SELECT error_class, completed_at FROM steward_runs
         WHERE team_id = %(team_id)s AND provider IS NOT NULL AND completed_at > now() - interval '1 day'
         ORDER BY completed_at DESC LIMIT 20
    ), failed AS (
        SELECT count(*) AS failures, max(n.completed_at) AS last_at,
               (array_agg(n.error_class ORDER BY n.completed_at DESC))[1] AS last_failure
          FROM newest n
         WHERE n.error_class IS NOT NULL
           AND NOT EXISTS (SELECT FROM newest later WHERE later.error_class IS NULL AND later.completed_at >= n.completed_at)
    )
    SELECT failures AS consecutive_failures, last_failure,
           CASE WHEN failures >= %(most_failures)s THEN last_at END AS opened_at,
           CASE WHEN failures >= %(most_failures)s THEN last_at + make_interval(secs => %(seconds)s) END AS open_until,
           coalesce(failures >= %(most_failures)s AND last_at + make_interval(secs => %(seconds)s) > now(), false) AS is_open
      FROM failed
    """,
    prepare=False,
)


async def add(
    conn: Conn,
    run_id: UUID,
    team_id: UUID,
    status: steward_model.RunStatus,
    *,
    job: steward_model.StewardJob | None = None,
    call: steward_model.ModelCall | None = None,
    input_snapshot: object = None,
    output_snapshot: object = None,
    input_hash: str | None = None,
    error_class: str | None = None,
    error_message: str | None = None,
) -> None:
    """A run that ends with this transaction; of no job is a tuning of the team's thresholds."""
    await ADD.run(
        conn,
        id=run_id,
        team_id=team_id,
        project_id=job and job.project_id,
        job_id=job and job.id,
        job_type=job.job_type if job else "policy_tune",
        attempt=job.attempt_count if job else 1,
        began_at=job and job.locked_at,
        status=status,
        provider=call and call.provider,
        model=call and call.model,
        prompt_tokens=call.prompt_tokens if call else 0,
        completion_tokens=call.completion_tokens if call else 0,
        input_snapshot=Jsonb(input_snapshot or {}),
        output_snapshot=None if output_snapshot is None else Jsonb(output_snapshot),
        input_hash=input_hash,
        error_class=error_class,
        error_message=error_message and error_message[:2000],
    )


@query("""
    SELECT EXISTS (SELECT FROM steward_runs
                    WHERE team_id = %(team_id)s AND job_type = 'policy_tune' AND input_snapshot ->> 'mode' = %(mode)s
                      AND created_at >= date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')
    """)
async def is_tuned_today(conn: Conn, team_id: UUID, mode: str) -> bool: ...


@query(f"{_SELECT} AND r.id = %(run_id)s")
async def by_id(conn: Conn, team_id: UUID, run_id: UUID) -> steward_model.StewardRun | None: ...


@unprepared_query(f"""
    {_SELECT}
       AND ((%(project_id)s::uuid IS NULL AND r.project_id IS NULL) OR {IN_REACH_O.replace("o.project_id", "r.project_id")})
       AND (%(status)s::text IS NULL OR r.status = %(status)s::text)
       AND (%(job_type)s::text IS NULL OR r.job_type = %(job_type)s::text)
       AND (%(before)s::timestamptz IS NULL OR (r.created_at, r.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY r.created_at DESC, r.id DESC LIMIT %(limit)s OFFSET %(offset)s
    """)
async def newest(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None = None,
    status: str | None = None,
    job_type: str | None = None,
    before: datetime | None = None,
    before_id: UUID | None = None,
    limit: int,
    offset: int = 0,
) -> list[steward_model.StewardRun]:
    """Newest first; None for no filter."""
    ...


@query("SELECT id FROM steward_runs WHERE id = %(run_id)s AND team_id = %(team_id)s FOR UPDATE")
async def lock(conn: Conn, team_id: UUID, run_id: UUID) -> UUID | None: ...


@query("UPDATE steward_runs SET undone_at = now(), undone_by = %(undone_by)s WHERE id = %(run_id)s AND team_id = %(team_id)s")
async def mark_undone(conn: Conn, team_id: UUID, run_id: UUID, undone_by: str) -> None: ...


@query("""
    SELECT id, job_id, run_id, event_type, data, schema_version, created_at FROM steward_events
     WHERE team_id = %(team_id)s AND job_id = %(job_id)s
     ORDER BY id LIMIT %(limit)s OFFSET %(offset)s
    """)
async def events(conn: Conn, team_id: UUID, job_id: UUID, *, limit: int, offset: int = 0) -> list[steward_model.StewardEvent]:
    """The timeline of a job, oldest first."""
    ...


@unprepared_query("""
    SELECT count(*) FILTER (WHERE created_at > now() - interval '1 hour') AS runs_last_hour, count(*) AS runs,
           count(*) FILTER (WHERE status IN ('succeeded', 'skipped')) AS succeeded,
           coalesce(avg(total_tokens), 0)::float8 AS average_tokens, coalesce(avg(latency_ms), 0)::float8 AS average_latency_ms,
           percentile_disc(0.95) WITHIN GROUP (ORDER BY latency_ms) AS p95_latency_ms
      FROM steward_runs
     WHERE team_id = %(team_id)s AND created_at > now() - interval '24 hours'
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def figures(conn: Conn, team_id: UUID, project_id: UUID | None) -> steward_model.RunFigures: ...


@unprepared_query("""
    SELECT coalesce(error_class, '') AS reason, count(*) AS count FROM steward_runs
     WHERE team_id = %(team_id)s AND created_at > now() - interval '24 hours' AND error_class IS NOT NULL
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
     GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5
    """)
async def failures(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[steward_model.RunFailure]: ...


async def breaker(conn: Conn, team_id: UUID) -> steward_model.Breaker:
    return await BREAKER.one(
        conn, team_id=team_id, most_failures=steward_model.BREAKER_FAILURES, seconds=steward_model.BREAKER_SECONDS
    )
