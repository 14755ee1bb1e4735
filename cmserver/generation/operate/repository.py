"""SQL for operating the queue: lists, figures, retry, cancel, reindex. The lock order is that of generation/repository.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString, get_args
from uuid import UUID

from msgspec import structs

from cmserver.base.sql import Conn, Jsonb, Query, query, unprepared_query
from cmserver.events.model import IS_WORK
from cmserver.generation.model import JOB_COLUMNS, JOB_FOR_REINDEX, JOB_FOR_TURN, Job, JobOrigin, Status
from cmserver.generation.operate import model

OWNS: set[str] = set()  # generation/repository.py owns the tables

_J_COLUMNS: LiteralString = "j." + JOB_COLUMNS.replace(", ", ", j.")

# `> '-infinity'` is true of every row and makes the partial indexes of lists usable (rule 3 of migration 0001). The list of phases
# tells the planner how few rows an open one has.
_MATCHING: LiteralString = """
                j.team_id = %(team_id)s AND j.phase = wanted.phase AND j.phase = ANY(%(phases)s::text[])
                  AND j.created_at > '-infinity'
                  AND (%(open_status)s::text IS NULL OR j.status = %(open_status)s::text)
                  AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)
                  AND (%(session_id)s::uuid IS NULL OR j.server_session_id = %(session_id)s::uuid)
                  AND (%(source_type)s::text IS NULL OR j.source_type = %(source_type)s::text)
                  AND (%(job_type)s::text IS NULL OR j.job_type = %(job_type)s::text)
                  AND (%(with_steward)s::boolean OR j.source_type <> 'steward')
                  AND (%(since)s::timestamptz IS NULL OR j.created_at >= %(since)s::timestamptz)
                  AND (%(ids)s::uuid[] IS NULL OR j.id = ANY(%(ids)s::uuid[]))"""

# Reads a page of each phase from the end of an index, then takes the newest of all.
PAGE = Query(
    Job,
    f"""
    WITH page AS MATERIALIZED (
        SELECT listed.id, listed.created_at
          FROM unnest(%(phases)s::text[]) AS wanted(phase)
         CROSS JOIN LATERAL (
               SELECT j.id, j.created_at FROM observation_generation_jobs j
                WHERE {_MATCHING}
                  AND (%(before)s::timestamptz IS NULL
                       OR (j.created_at, j.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
                ORDER BY j.created_at DESC, j.id DESC LIMIT %(limit)s::bigint + %(offset)s::bigint) listed
         ORDER BY listed.created_at DESC, listed.id DESC LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint
    )
    SELECT {_J_COLUMNS}
      FROM page p JOIN observation_generation_jobs j ON j.id = p.id AND j.team_id = %(team_id)s
     ORDER BY j.created_at DESC, j.id DESC
    """,
    prepare=False,
)

# Ordered as the index is, or the planner reads the whole table.
COUNT = Query(
    int,
    f"""
    SELECT count(*) FROM (
        SELECT 1 FROM unnest(%(phases)s::text[]) AS wanted(phase)
         CROSS JOIN LATERAL (
               SELECT 1 FROM observation_generation_jobs j
                WHERE {_MATCHING}
                ORDER BY j.created_at DESC, j.id DESC LIMIT %(max_count)s::bigint) matched
         LIMIT %(max_count)s::bigint) counted
    """,
    prepare=False,
)

_BY_ID: LiteralString = f"""
    SELECT {JOB_COLUMNS}
      FROM observation_generation_jobs
     WHERE id = %(id)s AND team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """

BY_ID = Query(Job, _BY_ID)

LOCK = Query(Job, f"{_BY_ID} FOR UPDATE")

# Locked in the order of ids, as single jobs are.
LOCK_SELECTED = Query(
    Job,
    f"""
    WITH chosen AS MATERIALIZED (
        SELECT j.id FROM unnest(%(phases)s::text[]) AS wanted(phase)
         CROSS JOIN LATERAL (
               SELECT j.id FROM observation_generation_jobs j
                WHERE {_MATCHING}
                ORDER BY j.created_at DESC, j.id DESC LIMIT %(limit)s::bigint) j
         LIMIT %(limit)s::bigint
    )
    SELECT {_J_COLUMNS}
      FROM observation_generation_jobs j
     WHERE j.team_id = %(team_id)s AND j.id = ANY(ARRAY(SELECT id FROM chosen)) AND j.status = ANY(%(statuses)s::text[])
     ORDER BY j.id FOR UPDATE
    """,
    prepare=False,
)


PAYLOADS = Query(
    model.Payload,
    """
    SELECT j.id, j.payload, e.id AS event_id, e.event_type, e.payload AS event_payload
      FROM observation_generation_jobs j
      LEFT JOIN agent_events e ON e.id = j.agent_event_id AND e.team_id = j.team_id
     WHERE j.id = ANY(%(ids)s) AND j.team_id = %(team_id)s
    """,
)

# A job's calls lie between its creation and its end: the bounds limit the scan of the index.
RUNS = Query(
    model.Run,
    """
    SELECT id, provider, model, status, error_class, error_message,
           input_tokens + cache_read_tokens + cache_write_tokens AS input_tokens, output_tokens, cost_usd, latency_ms,
           CASE WHEN %(with_answer)s THEN answer END AS answer, created_at
      FROM generation_runs
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND job_ids @> ARRAY[%(job_id)s::uuid]
       AND created_at BETWEEN %(since)s AND coalesce(%(until)s::timestamptz, 'infinity')
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s
    """,
)


LAST_REINDEX = Query(
    Job,
    f"""
    SELECT {JOB_COLUMNS}
      FROM observation_generation_jobs
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND source_type = 'observation_reindex'
       AND source_id = %(source_id)s AND job_type = %(job_type)s
     ORDER BY source_run DESC LIMIT 1
    """,
)

INSERT_REINDEX = Query(
    Job,
    f"""
    INSERT INTO observation_generation_jobs
           (id, project_id, team_id, lane, source_type, source_id, source_run, job_type, idempotency_key, payload,
            api_key_id, actor_id, source_adapter, request_id, created_at)
    VALUES (%(id)s, %(project_id)s, %(team_id)s, %(id)s, 'observation_reindex', %(source_id)s, %(source_run)s, %(job_type)s,
            %(idempotency_key)s, %(payload)s, %(api_key_id)s, %(actor_id)s, 'api', %(request_id)s, clock_timestamp())
    ON CONFLICT DO NOTHING
    RETURNING {JOB_COLUMNS}
    """,
)

# Of the turn's session, so that it is moved and deleted with it; in a lane of its own.
INSERT_TURN_JOB = Query(
    UUID,
    """
    INSERT INTO observation_generation_jobs
           (id, project_id, team_id, lane, source_type, source_id, server_session_id, job_type, idempotency_key, payload,
            api_key_id, actor_id, source_adapter, request_id, created_at)
    VALUES (%(id)s, %(project_id)s, %(team_id)s, %(id)s, 'turn', %(turn_id)s, %(session_id)s, %(job_type)s,
            %(idempotency_key)s, '{}', %(api_key_id)s, %(actor_id)s, 'api', %(request_id)s, clock_timestamp())
    RETURNING id
    """,
)


# The queue lengths of the teams with queued or running jobs, the longest first.
QUEUE_LENGTHS = Query(
    model.QueueLength,
    """
    SELECT t.id AS team_id, t.name AS team, u.queued, u.processing
      FROM teams t
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE j.status = 'queued') AS queued,
                  count(*) FILTER (WHERE j.status = 'processing') AS processing
             FROM observation_generation_jobs j
            WHERE j.team_id = t.id AND j.phase = 'open' AND j.created_at > '-infinity') u
     WHERE u.queued + u.processing > 0
     ORDER BY u.queued DESC
    """,
)


async def page(
    conn: Conn,
    team_id: UUID,
    criteria: model.JobFilter,
    *,
    limit: int,
    offset: int,
    before: datetime | None,
    before_id: UUID | None,
) -> list[Job]:
    """Newest first, after the position (`before`, `before_id`) of the previous page's last job."""
    params = _params(team_id, criteria)
    return await PAGE.all(conn, **params, before=before, before_id=before_id, limit=limit, offset=offset)


# Of jobs of the last two days: one that waited longer than a day does not count as ended.
@unprepared_query("""
    WITH jobs AS MATERIALIZED (
        SELECT date_trunc('hour', created_at) AS came, date_trunc('hour', coalesce(completed_at, failed_at, cancelled_at)) AS ended
          FROM observation_generation_jobs
         WHERE team_id = %(team_id)s AND phase IN ('open', 'completed', 'failed', 'cancelled')
           AND created_at > now() - interval '48 hours' AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    )
    SELECT hour, (SELECT count(*) FROM jobs WHERE came = hour) AS came, (SELECT count(*) FROM jobs WHERE ended = hour) AS ended
      FROM generate_series(date_trunc('hour', now()) - interval '23 hours', date_trunc('hour', now()), interval '1 hour') AS hour
     ORDER BY hour
    """)
async def queue_hours(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[model.QueueHour]:
    """The last 24 hours of the queue, the oldest first."""
    ...


async def count(
    conn: Conn, team_id: UUID, criteria: model.JobFilter, max_count: int, *, statuses: Sequence[Status] | None = None
) -> int:
    """The number of jobs, counted up to `max_count`; with `statuses` of those that have one of them."""
    return await COUNT.one(conn, **_params(team_id, criteria, statuses), max_count=max_count)


def _params(team_id: UUID, criteria: model.JobFilter, statuses: Sequence[Status] | None = None) -> dict[str, object]:
    """Open jobs have their status in no index: it is looked at in their rows."""
    statuses = statuses or ([criteria.status] if criteria.status else get_args(Status))
    open_statuses = [status for status in statuses if status in model.OPEN_STATUSES]
    return {
        **structs.asdict(criteria),
        "team_id": team_id,
        "statuses": list(statuses),
        "phases": sorted({"open" if status in open_statuses else status for status in statuses}),
        "open_status": open_statuses[0] if len(open_statuses) == 1 else None,
    }


async def by_id(conn: Conn, team_id: UUID, project_id: UUID | None, job_id: UUID) -> Job | None:
    return await BY_ID.first(conn, id=job_id, team_id=team_id, project_id=project_id)


async def lock(conn: Conn, team_id: UUID, project_id: UUID | None, job_id: UUID) -> Job | None:
    return await LOCK.first(conn, id=job_id, team_id=team_id, project_id=project_id)


# Claims and workers belong to the operator; they are left out of what a team sees.
@query("""
    SELECT row_number() OVER (ORDER BY id) AS number, event_type, status_after, attempt,
           details - ARRAY['claim', 'by', 'worker'] AS details, created_at
      FROM observation_generation_job_events
     WHERE generation_job_id = %(job_id)s AND team_id = %(team_id)s
     ORDER BY id LIMIT %(limit)s OFFSET %(after)s
    """)
async def job_events(conn: Conn, team_id: UUID, job_id: UUID, *, after: int, limit: int) -> list[model.JobEvent]:
    """Oldest first, without the first `after` ones."""
    ...


async def payloads(conn: Conn, team_id: UUID, job_ids: Sequence[UUID]) -> dict[UUID, model.Payload]:
    return {payload.id: payload for payload in await PAYLOADS.all(conn, team_id=team_id, ids=list(job_ids))}


async def runs(conn: Conn, job: Job, *, limit: int, with_answer: bool) -> list[model.Run]:
    """The provider calls of the job, newest first."""
    return await RUNS.all(
        conn,
        team_id=job.team_id,
        project_id=job.project_id,
        job_id=job.id,
        since=job.created_at,
        until=None if job.status == "processing" else job.updated_at,
        with_answer=with_answer,
        limit=limit,
    )


@query("""
    SELECT j.id, j.source_type = 'steward' AS is_of_steward, j.waits_for_end, l.due_at, l.held_until, l.held_reason, l.held_for,
           CASE WHEN l.worker_id IS NOT NULL THEN 'working' WHEN l.held_until > now() THEN 'held'
                WHEN l.due_at <= now() THEN 'due' WHEN l.due_at IS NOT NULL THEN 'waiting' ELSE 'idle' END AS state,
           (SELECT count(*) FROM (
                SELECT FROM observation_generation_jobs b
                 WHERE b.lane = j.lane AND b.team_id = j.team_id AND b.phase = 'open' AND b.seq < j.seq LIMIT 1000) b) AS before
      FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane AND l.team_id = j.team_id
     WHERE j.id = ANY(%(job_ids)s) AND j.team_id = %(team_id)s AND j.status = 'queued'
    """)
async def waiting(conn: Conn, team_id: UUID, job_ids: Sequence[UUID]) -> list[model.WaitingJob]:
    """Those of the jobs that are queued."""
    ...


# What a lane of this age is due for comes before what it is not; idle lanes are left out unless they are asked for.
@unprepared_query("""
    WITH lanes AS MATERIALIZED (
        SELECT l.lane, l.project_id, l.due_at, l.held_until, l.held_reason, l.held_for, l.locked_at,
               CASE WHEN l.worker_id IS NOT NULL THEN 'working' WHEN l.held_until > now() THEN 'held'
                    WHEN l.due_at <= now() THEN 'due' WHEN l.due_at IS NOT NULL THEN 'waiting' ELSE 'idle' END AS state
          FROM generation_lanes l
         WHERE l.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR l.project_id = %(project_id)s::uuid)
           AND (l.worker_id IS NOT NULL OR l.due_at IS NOT NULL)
    )
    SELECT l.lane, l.project_id, l.lane = l.project_id AS is_of_steward, s.id AS session_id, l.state, q.queued,
           l.due_at, l.held_until, l.held_reason, l.held_for, l.locked_at
      FROM (SELECT * FROM lanes WHERE %(state)s::text IS NULL OR state = %(state)s::text
             ORDER BY array_position(ARRAY['working', 'due', 'held', 'waiting'], state), due_at, lane LIMIT %(limit)s) l
      LEFT JOIN server_sessions s ON s.id = l.lane AND s.team_id = %(team_id)s
     CROSS JOIN LATERAL (
           SELECT count(*) AS queued FROM observation_generation_jobs j
            WHERE j.lane = l.lane AND j.phase = 'open' AND j.status = 'queued' AND j.team_id = %(team_id)s) q
     ORDER BY array_position(ARRAY['working', 'due', 'held', 'waiting'], l.state), l.due_at, l.lane
    """)
async def lanes(conn: Conn, team_id: UUID, *, project_id: UUID | None, state: str | None, limit: int) -> list[model.Lane]:
    """Lanes with work: those that a worker has first, then by when they are due."""
    ...


async def lock_selected(conn: Conn, team_id: UUID, criteria: model.JobFilter, statuses: Sequence[Status], limit: int) -> list[Job]:
    """The jobs that match and have one of the statuses, locked in the order of their ids."""
    return await LOCK_SELECTED.all(conn, **_params(team_id, criteria, statuses), limit=limit)


# A trigger adds three attempts and the event, and makes the lane due. A job whose key was revoked gets the key of the caller.
@query(f"""
    UPDATE observation_generation_jobs
       SET status = 'queued',
           api_key_id = CASE WHEN last_error ->> 'reason' = 'key_revoked' THEN %(api_key_id)s::uuid ELSE api_key_id END,
           actor_id = CASE WHEN last_error ->> 'reason' = 'key_revoked' THEN %(actor_id)s ELSE actor_id END
     WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s AND status IN ('failed', 'cancelled')
    RETURNING {JOB_COLUMNS}
    """)
async def retry(conn: Conn, team_id: UUID, ids: Sequence[UUID], *, api_key_id: UUID | None, actor_id: str) -> list[Job]:
    """Queue failed or cancelled jobs that the caller has locked; the key and actor are the caller's."""
    ...


# A queued job ends at once; a running one is marked, and its worker writes nothing for it.
@query(f"""
    UPDATE observation_generation_jobs
       SET status = CASE WHEN status = 'queued' THEN 'cancelled' ELSE status END,
           cancel_requested_at = CASE WHEN status = 'processing' THEN coalesce(cancel_requested_at, now()) END
     WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s AND status IN ('queued', 'processing')
    RETURNING {JOB_COLUMNS}
    """)
async def cancel(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> list[Job]:
    """End queued jobs, or mark running ones; the caller has locked them."""
    ...


async def last_reindex(conn: Conn, team_id: UUID, project_id: UUID, source_id: UUID) -> Job | None:
    return await LAST_REINDEX.first(conn, team_id=team_id, project_id=project_id, source_id=source_id, job_type=JOB_FOR_REINDEX)


async def insert_reindex(
    conn: Conn, job_origin: JobOrigin, *, job_id: UUID, project_id: UUID, source_id: UUID, source_run: int, payload: object
) -> Job | None:
    """The new job, in a lane of its own; None when another request has just inserted the same run."""
    return await INSERT_REINDEX.first(
        conn,
        id=job_id,
        project_id=project_id,
        team_id=job_origin.team_id,
        source_id=source_id,
        source_run=source_run,
        job_type=JOB_FOR_REINDEX,
        idempotency_key=f"reindex:v1:{project_id}:{source_id}:{source_run}",
        payload=Jsonb(payload),
        api_key_id=job_origin.api_key_id,
        actor_id=job_origin.actor_id,
        request_id=job_origin.request_id,
    )


async def insert_turn_job(
    conn: Conn, job_origin: JobOrigin, *, job_id: UUID, project_id: UUID, session_id: UUID, turn_id: UUID
) -> UUID:
    """The new job, in a lane of its own."""
    return await INSERT_TURN_JOB.one(
        conn,
        id=job_id,
        project_id=project_id,
        team_id=job_origin.team_id,
        session_id=session_id,
        turn_id=turn_id,
        job_type=JOB_FOR_TURN,
        idempotency_key=f"turn:v1:{turn_id}",
        api_key_id=job_origin.api_key_id,
        actor_id=job_origin.actor_id,
        request_id=job_origin.request_id,
    )


@query(f"""
    SELECT count(*) FROM observation_generation_jobs j
     WHERE lane = %(session_id)s AND team_id = %(team_id)s AND phase = 'open' AND status = 'queued'
       AND NOT EXISTS (SELECT FROM agent_events e WHERE e.id = j.agent_event_id AND e.team_id = j.team_id AND NOT {IS_WORK})
    """)
async def waiting_of_session(conn: Conn, team_id: UUID, session_id: UUID) -> int:
    """The number of queued jobs of the session, but for those of its prompts and replies."""
    ...


# The steward's wait for whatever else is due, and nobody waits for them: their age tells nothing of the queue.
# Ended jobs are counted from an index alone, one range per status; for all at once the planner reads the table.
@unprepared_query("""
    WITH ended AS MATERIALIZED (
        SELECT wanted.phase, c.jobs FROM unnest(ARRAY['completed', 'failed', 'cancelled']) AS wanted(phase)
         CROSS JOIN LATERAL (
               SELECT count(*) AS jobs FROM observation_generation_jobs j
                WHERE j.team_id = %(team_id)s AND j.phase = wanted.phase AND j.created_at > '-infinity'
                  AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)) c
    ), unfinished AS MATERIALIZED (
        SELECT CASE WHEN j.status = 'processing' THEN 'active' WHEN l.held_until > now() THEN 'held'
                    WHEN l.due_at > now() THEN 'delayed' ELSE 'waiting' END AS state,
               j.updated_at, j.source_type = 'steward' AS of_steward
          FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
         WHERE j.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)
           AND j.phase = 'open' AND j.created_at > '-infinity'
    )
    SELECT (SELECT count(*) FROM unfinished WHERE state = 'waiting') AS waiting,
           (SELECT count(*) FROM unfinished WHERE state = 'delayed') AS delayed,
           (SELECT count(*) FROM unfinished WHERE state = 'held') AS held,
           (SELECT count(*) FROM unfinished WHERE state = 'active') AS active,
           (SELECT count(*) FROM unfinished WHERE of_steward) AS of_steward,
           (SELECT jobs FROM ended WHERE phase = 'completed') AS completed,
           (SELECT jobs FROM ended WHERE phase = 'failed') AS failed,
           (SELECT jobs FROM ended WHERE phase = 'cancelled') AS cancelled,
           (SELECT count(*) FROM observation_generation_job_events
             WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
               AND details ->> 'reason' = 'worker lost') AS recovered,
           (SELECT extract(epoch FROM now() - min(updated_at))::float8 FROM unfinished WHERE state = 'waiting' AND NOT of_steward)
               AS oldest_waiting_seconds
    """)
async def queue_counts(conn: Conn, team_id: UUID, project_id: UUID | None) -> model.QueueCounts: ...


# Without events, the bulk of the jobs: theirs is the rest of the sums.
@unprepared_query("""
    SELECT source_type, phase AS state, count(*) AS jobs FROM observation_generation_jobs
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND source_type <> 'agent_event' AND phase <> 'open'
     GROUP BY source_type, phase
     UNION ALL
    SELECT j.source_type,
           CASE WHEN j.status = 'processing' THEN 'processing' WHEN l.held_until > now() OR l.due_at > now() THEN 'delayed'
                ELSE 'waiting' END,
           count(*)
      FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
     WHERE j.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR j.project_id = %(project_id)s::uuid)
       AND j.source_type <> 'agent_event' AND j.phase = 'open'
     GROUP BY 1, 2
     UNION ALL
    SELECT j.source_type, 'recovered', count(*)
      FROM observation_generation_job_events e
      JOIN observation_generation_jobs j ON j.id = e.generation_job_id AND j.team_id = e.team_id
     WHERE e.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR e.project_id = %(project_id)s::uuid)
       AND e.details ->> 'reason' = 'worker lost' AND j.source_type <> 'agent_event'
     GROUP BY 1, 2
    """)
async def kind_counts(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[model.KindCount]: ...


# Reads each team's queue from its oldest job to the first that is due and older than `seconds`; nobody waits for the steward's.
@query("""
    SELECT t.name AS team, extract(epoch FROM now() - w.updated_at)::float8 AS oldest_waiting_seconds
      FROM teams t
     CROSS JOIN LATERAL (
           SELECT j.updated_at FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
            WHERE j.team_id = t.id AND j.phase = 'open' AND j.status = 'queued' AND j.created_at > '-infinity'
              AND j.source_type <> 'steward'
              AND j.updated_at < now() - make_interval(secs => %(seconds)s)
              AND (l.held_until > now()) IS NOT TRUE AND (l.due_at > now()) IS NOT TRUE
            ORDER BY j.created_at, j.id LIMIT 1) w
     ORDER BY w.updated_at
    """)
async def queue_delays(conn: Conn, seconds: float) -> list[model.QueueDelay]:
    """The teams whose oldest waiting job is older than `seconds`, the oldest first."""
    ...
