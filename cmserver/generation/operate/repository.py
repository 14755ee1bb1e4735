"""SQL for looking at the queue and acting on it by hand. The tables belong to generation, and its lock order holds here too."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from cmserver.base.sql import Conn, Jsonb, Query
from cmserver.generation.model import JOB_FOR_REINDEX, Asker
from cmserver.generation.operate.model import STATUSES, Behind, Filter, KindCount, KnownJob, Payload, QueueCounts, Run, Step

OWNS: set[str] = set()  # the room's other repositories say it

# (`> '-infinity'` is true of every row: the indexes of these lists say it, see migration 0008.)
# Newest first: of each status as many as the page may need, each read from the end of an index, and the newest of them all.
PAGE = Query(
    KnownJob,
    """
    WITH page AS MATERIALIZED (
        SELECT found.id, found.created_at
          FROM unnest(%(statuses)s::text[]) AS one(status)
         CROSS JOIN LATERAL (
               SELECT j.id, j.created_at FROM observation_generation_jobs j
                WHERE j.team_id = %(team_id)s AND j.status = one.status AND j.created_at > '-infinity'
                  AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)
                  AND (%(source_type)s::text IS NULL OR j.source_type = %(source_type)s::text)
                  AND (%(since)s::timestamptz IS NULL OR j.created_at >= %(since)s::timestamptz)
                  AND (%(before)s::timestamptz IS NULL
                       OR (j.created_at, j.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
                ORDER BY j.created_at DESC, j.id DESC LIMIT %(limit)s::bigint + %(offset)s::bigint) found
         ORDER BY found.created_at DESC, found.id DESC LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint
    )
    SELECT j.id, j.project_id, j.team_id, j.lane, j.agent_event_id, j.server_session_id, j.source_type, j.source_id, j.source_run,
           j.job_type, j.status, j.attempts, j.max_attempts, j.outcome, j.outcome_reason, j.last_error, j.next_attempt_at,
           j.cancel_requested_at, j.completed_at, j.failed_at, j.cancelled_at, j.created_at, j.updated_at
      FROM page p JOIN observation_generation_jobs j ON j.id = p.id AND j.team_id = %(team_id)s
     ORDER BY j.created_at DESC, j.id DESC
    """,
    prepare=False,
)

# In the order of the index, or the planner reads the table.
COUNT = Query(
    int,
    """
    SELECT count(*) FROM (
        SELECT 1 FROM unnest(%(statuses)s::text[]) AS one(status)
         CROSS JOIN LATERAL (
               SELECT 1 FROM observation_generation_jobs j
                WHERE j.team_id = %(team_id)s AND j.status = one.status AND j.created_at > '-infinity'
                  AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)
                  AND (%(source_type)s::text IS NULL OR j.source_type = %(source_type)s::text)
                  AND (%(since)s::timestamptz IS NULL OR j.created_at >= %(since)s::timestamptz)
                ORDER BY j.created_at DESC, j.id DESC LIMIT %(most)s::bigint) found
         LIMIT %(most)s::bigint) counted
    """,
    prepare=False,
)

ONE = Query(
    KnownJob,
    """
    SELECT id, project_id, team_id, lane, agent_event_id, server_session_id, source_type, source_id, source_run, job_type, status,
           attempts, max_attempts, outcome, outcome_reason, last_error, next_attempt_at, cancel_requested_at, completed_at,
           failed_at, cancelled_at, created_at, updated_at
      FROM observation_generation_jobs
     WHERE id = %(id)s AND team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
)

LOCK = Query(
    KnownJob,
    """
    SELECT id, project_id, team_id, lane, agent_event_id, server_session_id, source_type, source_id, source_run, job_type, status,
           attempts, max_attempts, outcome, outcome_reason, last_error, next_attempt_at, cancel_requested_at, completed_at,
           failed_at, cancelled_at, created_at, updated_at
      FROM observation_generation_jobs
     WHERE id = %(id)s AND team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       FOR UPDATE
    """,
)

# The trigger does the rest: three more attempts, the trace, the lane is due. Where the key that asked was revoked, whoever sends
# the job back answers for it now.
RETRY = Query(
    KnownJob,
    """
    UPDATE observation_generation_jobs
       SET status = 'queued',
           api_key_id = CASE WHEN last_error ->> 'reason' = 'key_revoked' THEN %(api_key_id)s::uuid ELSE api_key_id END,
           actor_id = CASE WHEN last_error ->> 'reason' = 'key_revoked' THEN %(actor_id)s ELSE actor_id END
     WHERE id = %(id)s AND team_id = %(team_id)s AND status IN ('failed', 'cancelled')
    RETURNING id, project_id, team_id, lane, agent_event_id, server_session_id, source_type, source_id, source_run, job_type,
              status, attempts, max_attempts, outcome, outcome_reason, last_error, next_attempt_at, cancel_requested_at,
              completed_at, failed_at, cancelled_at, created_at, updated_at
    """,
)

# A queued job ends at once; a running one is marked, and its worker writes nothing for it.
CANCEL = Query(
    KnownJob,
    """
    UPDATE observation_generation_jobs
       SET status = CASE WHEN status = 'queued' THEN 'cancelled' ELSE status END,
           cancel_requested_at = CASE WHEN status = 'processing' THEN coalesce(cancel_requested_at, now()) END
     WHERE id = %(id)s AND team_id = %(team_id)s AND status IN ('queued', 'processing')
    RETURNING id, project_id, team_id, lane, agent_event_id, server_session_id, source_type, source_id, source_run, job_type,
              status, attempts, max_attempts, outcome, outcome_reason, last_error, next_attempt_at, cancel_requested_at,
              completed_at, failed_at, cancelled_at, created_at, updated_at
    """,
)

# Claims and rows are counted over all teams, and workers are the operator's: what a team sees leaves them out.
STEPS = Query(
    Step,
    """
    SELECT row_number() OVER (ORDER BY id) AS place, event_type, status_after, attempt,
           details - ARRAY['claim', 'by', 'worker'] AS details, created_at
      FROM observation_generation_job_events
     WHERE generation_job_id = %(job_id)s AND team_id = %(team_id)s
     ORDER BY id LIMIT %(limit)s OFFSET %(after)s
    """,
)

PAYLOADS = Query(
    Payload,
    """
    SELECT j.id, j.payload, e.id AS event_id, e.event_type, e.payload AS event_payload
      FROM observation_generation_jobs j
      LEFT JOIN agent_events e ON e.id = j.agent_event_id AND e.team_id = j.team_id
     WHERE j.id = ANY(%(ids)s) AND j.team_id = %(team_id)s
    """,
)

# A job's calls are made while it lives: of the index of its project's calls only that part is read, the newest first.
NEWEST_RUN = Query(
    Run,
    """
    SELECT id, provider, model, status, error_class, error_message,
           input_tokens + cache_read_tokens + cache_write_tokens AS input_tokens, output_tokens, cost_usd, latency_ms,
           CASE WHEN %(with_answer)s THEN answer END AS answer, created_at
      FROM generation_runs
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND job_ids @> ARRAY[%(job_id)s::uuid]
       AND created_at BETWEEN %(since)s AND coalesce(%(until)s::timestamptz, 'infinity')
     ORDER BY created_at DESC, id DESC LIMIT 1
    """,
)

LAST_REINDEX = Query(
    KnownJob,
    """
    SELECT id, project_id, team_id, lane, agent_event_id, server_session_id, source_type, source_id, source_run, job_type, status,
           attempts, max_attempts, outcome, outcome_reason, last_error, next_attempt_at, cancel_requested_at, completed_at,
           failed_at, cancelled_at, created_at, updated_at
      FROM observation_generation_jobs
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND source_type = 'observation_reindex'
       AND source_id = %(source_id)s AND job_type = %(job_type)s
     ORDER BY source_run DESC LIMIT 1
    """,
)

INSERT_REINDEX = Query(
    KnownJob,
    """
    INSERT INTO observation_generation_jobs
           (id, project_id, team_id, lane, source_type, source_id, source_run, job_type, idempotency_key, max_attempts, payload,
            api_key_id, actor_id, source_adapter, request_id, created_at)
    VALUES (%(id)s, %(project_id)s, %(team_id)s, %(id)s, 'observation_reindex', %(source_id)s, %(source_run)s, %(job_type)s,
            %(idempotency_key)s, %(max_attempts)s, %(payload)s, %(api_key_id)s, %(actor_id)s, 'api', %(request_id)s,
            clock_timestamp())
    ON CONFLICT DO NOTHING
    RETURNING id, project_id, team_id, lane, agent_event_id, server_session_id, source_type, source_id, source_run, job_type,
              status, attempts, max_attempts, outcome, outcome_reason, last_error, next_attempt_at, cancel_requested_at,
              completed_at, failed_at, cancelled_at, created_at, updated_at
    """,
)

WAITING_OF_SESSION = Query(
    int,
    "SELECT count(*) FROM observation_generation_jobs WHERE lane = %(session_id)s AND team_id = %(team_id)s AND status = 'queued'",
)

# What has ended is counted from an index alone (one range a status: for all at once the planner reads the table); what waits is
# looked at with its lane.
QUEUE_COUNTS = Query(
    QueueCounts,
    """
    WITH ended AS MATERIALIZED (
        SELECT one.status, c.jobs FROM unnest(ARRAY['processing', 'completed', 'failed', 'cancelled']) AS one(status)
         CROSS JOIN LATERAL (
               SELECT count(*) AS jobs FROM observation_generation_jobs j
                WHERE j.team_id = %(team_id)s AND j.status = one.status AND j.created_at > '-infinity'
                  AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)) c
    ), queued AS MATERIALIZED (
        SELECT CASE WHEN l.held_until > now() THEN 'held' WHEN l.due_at > now() THEN 'delayed' ELSE 'waiting' END AS state,
               j.updated_at
          FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
         WHERE j.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)
           AND j.status = 'queued' AND j.created_at > '-infinity'
    )
    SELECT (SELECT count(*) FROM queued WHERE state = 'waiting') AS waiting,
           (SELECT count(*) FROM queued WHERE state = 'delayed') AS delayed,
           (SELECT count(*) FROM queued WHERE state = 'held') AS held,
           (SELECT jobs FROM ended WHERE status = 'processing') AS active,
           (SELECT jobs FROM ended WHERE status = 'completed') AS completed,
           (SELECT jobs FROM ended WHERE status = 'failed') AS failed,
           (SELECT jobs FROM ended WHERE status = 'cancelled') AS cancelled,
           (SELECT count(*) FROM observation_generation_job_events
             WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
               AND details ->> 'reason' = 'worker lost') AS recovered,
           (SELECT extract(epoch FROM now() - min(updated_at))::float8 FROM queued WHERE state = 'waiting')
               AS oldest_waiting_seconds
    """,
    prepare=False,
)

# Of all but events, which are most: what they have is the rest of the sums.
KIND_COUNTS = Query(
    KindCount,
    """
    SELECT source_type, status AS state, count(*) AS jobs FROM observation_generation_jobs
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND source_type <> 'agent_event' AND status <> 'queued'
     GROUP BY source_type, status
     UNION ALL
    SELECT j.source_type, CASE WHEN l.held_until > now() OR l.due_at > now() THEN 'delayed' ELSE 'waiting' END, count(*)
      FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
     WHERE j.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)
       AND j.source_type <> 'agent_event' AND j.status = 'queued'
     GROUP BY 1, 2
     UNION ALL
    SELECT j.source_type, 'recovered', count(*)
      FROM observation_generation_job_events e
      JOIN observation_generation_jobs j ON j.id = e.generation_job_id AND j.team_id = e.team_id
     WHERE e.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR e.project_id = %(project_id)s::uuid)
       AND e.details ->> 'reason' = 'worker lost' AND j.source_type <> 'agent_event'
     GROUP BY 1, 2
    """,
    prepare=False,
)

# Each team's queue is read from its oldest on, up to the first job that is due and was queued so long ago.
BEHIND = Query(
    Behind,
    """
    SELECT t.name AS team, extract(epoch FROM now() - w.updated_at)::float8 AS oldest_waiting_seconds
      FROM teams t
     CROSS JOIN LATERAL (
           SELECT j.updated_at FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
            WHERE j.team_id = t.id AND j.status = 'queued' AND j.created_at > '-infinity'
              AND j.updated_at < now() - make_interval(secs => %(seconds)s)
              AND (l.held_until > now()) IS NOT TRUE AND (l.due_at > now()) IS NOT TRUE
            ORDER BY j.created_at, j.id LIMIT 1) w
     ORDER BY w.updated_at
    """,
)


async def page(
    conn: Conn, which: Filter, *, limit: int, offset: int, before: datetime | None, before_id: UUID | None
) -> list[KnownJob]:
    """Newest first; `before` and `before_id` are the place of the last one on the page before."""
    return await PAGE.all(
        conn,
        team_id=which.team_id,
        project_id=which.project_id,
        statuses=_statuses(which),
        source_type=which.source_type,
        since=which.since,
        before=before,
        before_id=before_id,
        limit=limit,
        offset=offset,
    )


async def count(conn: Conn, which: Filter, most: int) -> int:
    """How many there are, up to `most`."""
    return await COUNT.one(
        conn,
        team_id=which.team_id,
        project_id=which.project_id,
        statuses=_statuses(which),
        source_type=which.source_type,
        since=which.since,
        most=most,
    )


def _statuses(which: Filter) -> list[str]:
    return [which.status] if which.status else list(STATUSES)


async def one(conn: Conn, team_id: UUID, project_id: UUID | None, job_id: UUID) -> KnownJob | None:
    return await ONE.first(conn, id=job_id, team_id=team_id, project_id=project_id)


async def lock(conn: Conn, team_id: UUID, project_id: UUID | None, job_id: UUID) -> KnownJob | None:
    return await LOCK.first(conn, id=job_id, team_id=team_id, project_id=project_id)


async def retry(conn: Conn, team_id: UUID, job_id: UUID, *, api_key_id: UUID | None, actor_id: str) -> KnownJob:
    """Of a failed or cancelled job, which the caller has locked. The key and actor are those of whoever sends it back."""
    return await RETRY.one(conn, id=job_id, team_id=team_id, api_key_id=api_key_id, actor_id=actor_id)


async def cancel(conn: Conn, team_id: UUID, job_id: UUID) -> KnownJob:
    """Of a queued or running job, which the caller has locked."""
    return await CANCEL.one(conn, id=job_id, team_id=team_id)


async def steps(conn: Conn, team_id: UUID, job_id: UUID, *, after: int, limit: int) -> list[Step]:
    """Oldest first."""
    return await STEPS.all(conn, team_id=team_id, job_id=job_id, after=after, limit=limit)


async def payloads(conn: Conn, team_id: UUID, job_ids: Sequence[UUID]) -> dict[UUID, Payload]:
    return {one.id: one for one in await PAYLOADS.all(conn, team_id=team_id, ids=list(job_ids))}


async def newest_run(conn: Conn, job: KnownJob, *, with_answer: bool) -> Run | None:
    """None when no provider has been asked for the job."""
    return await NEWEST_RUN.first(
        conn,
        team_id=job.team_id,
        project_id=job.project_id,
        job_id=job.id,
        since=job.created_at,
        until=None if job.status == "processing" else job.updated_at,
        with_answer=with_answer,
    )


async def last_reindex(conn: Conn, team_id: UUID, project_id: UUID, source_id: UUID) -> KnownJob | None:
    return await LAST_REINDEX.first(conn, team_id=team_id, project_id=project_id, source_id=source_id, job_type=JOB_FOR_REINDEX)


async def insert_reindex(
    conn: Conn, asker: Asker, *, job_id: UUID, project_id: UUID, source_id: UUID, source_run: int, payload: object
) -> KnownJob | None:
    """The job, in a lane of its own; None when somebody else has just made that run."""
    return await INSERT_REINDEX.first(
        conn,
        id=job_id,
        project_id=project_id,
        team_id=asker.team_id,
        source_id=source_id,
        source_run=source_run,
        job_type=JOB_FOR_REINDEX,
        idempotency_key=f"reindex:v1:{project_id}:{source_id}:{source_run}",
        max_attempts=asker.max_attempts,
        payload=Jsonb(payload),
        api_key_id=asker.api_key_id,
        actor_id=asker.actor_id,
        request_id=asker.request_id,
    )


async def waiting_of_session(conn: Conn, team_id: UUID, session_id: UUID) -> int:
    """How many jobs of the session nobody has begun with."""
    return await WAITING_OF_SESSION.one(conn, team_id=team_id, session_id=session_id)


async def queue_counts(conn: Conn, team_id: UUID, project_id: UUID | None) -> QueueCounts:
    return await QUEUE_COUNTS.one(conn, team_id=team_id, project_id=project_id)


async def kind_counts(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[KindCount]:
    return await KIND_COUNTS.all(conn, team_id=team_id, project_id=project_id)


async def behind(conn: Conn, seconds: float) -> list[Behind]:
    """The teams whose oldest waiting job has waited for longer, the worst first."""
    return await BEHIND.all(conn, seconds=seconds)
