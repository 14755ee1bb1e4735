"""SQL of what other rooms ask of the outbox: jobs put in and looked up, lanes made due, and what goes with a project or a session.

The lock order is that of generation/repository.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.events.model import IS_WORK
from cmserver.generation.model import JOB_COLUMNS, JOB_FOR_SUMMARY, Job, JobOrigin, Work

OWNS: set[str] = set()  # generation/repository.py owns the tables

# In the lane of their project, which is due at once. A job of a step of which one is open is not queued, and none while a worker
# lives that does not know the steward's jobs.
INSERT_STEWARD_JOBS = Query(
    UUID,
    """
    WITH new AS (
        SELECT n.*, row_number() OVER (PARTITION BY n.project_id ORDER BY n.place) AS place_in_project
          FROM jsonb_to_recordset(%(rows)s) AS n(id uuid, team_id uuid, project_id uuid, job_type text, source_id uuid,
                                                 payload jsonb, place integer)
         WHERE NOT EXISTS (SELECT FROM observation_generation_jobs j
                            WHERE j.source_id = n.source_id AND j.source_type = 'steward' AND j.job_type = n.job_type
                              AND j.phase = 'open')
           AND NOT EXISTS (SELECT FROM generation_workers g
                            WHERE NOT g.knows_steward AND g.worker_id IN (SELECT live_workers()))
    ), made AS (
        INSERT INTO observation_generation_jobs
               (id, project_id, team_id, lane, source_type, source_id, source_run, job_type, payload, actor_id, source_adapter)
        SELECT n.id, n.project_id, n.team_id, n.project_id, 'steward', n.source_id,
               1 + coalesce((SELECT max(j.source_run) FROM observation_generation_jobs j
                              WHERE j.source_id = n.source_id AND j.source_type = 'steward' AND j.job_type = n.job_type), 0),
               n.job_type, n.payload, 'steward', 'steward'
          FROM new n
         WHERE (SELECT count(*) FROM observation_generation_jobs j WHERE j.source_type = 'steward' AND j.phase = 'open')
               + (SELECT count(*) FROM new before WHERE before.place < n.place) < %(max_open)s
           AND (SELECT count(*) FROM observation_generation_jobs j
                 WHERE j.team_id = n.team_id AND j.lane = n.project_id AND j.source_type = 'steward' AND j.phase = 'open')
               + n.place_in_project <= %(max_open_of_project)s
         ORDER BY n.place
        ON CONFLICT DO NOTHING
        RETURNING id, seq, team_id, project_id
    ), due AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
        SELECT project_id, team_id, project_id, now() FROM made GROUP BY project_id, team_id ORDER BY project_id
        ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at))
    )
    SELECT id FROM made ORDER BY seq
    """,
    prepare=False,
)

# Make the lanes due that are held for a provider's pause; not those held for a back-off or a budget. A lane is held for the
# provider whose pause was to end first; one that comes back earlier may answer it, too.
MAKE_PAUSED_LANES_DUE = Query(
    int,
    """
    WITH held AS (
        SELECT lane FROM generation_lanes
         WHERE held_for IS NOT NULL AND held_for <> 'budget' AND worker_id IS NULL ORDER BY lane FOR UPDATE
    )
    UPDATE generation_lanes l SET held_until = NULL, held_reason = NULL, held_for = NULL, due_at = now()
      FROM held WHERE l.lane = held.lane
    """,
)


JOBS_OF_EVENTS = Query(
    Job,
    f"""
    SELECT {JOB_COLUMNS}
      FROM observation_generation_jobs WHERE agent_event_id = ANY(%(event_ids)s) AND team_id = %(team_id)s
    """,
)


INSERT_SUMMARY_JOB = Query(
    Job,
    f"""
    INSERT INTO observation_generation_jobs
           (id, project_id, team_id, lane, source_type, source_id, source_run, server_session_id, job_type, idempotency_key,
            api_key_id, actor_id, source_adapter, request_id, created_at)
    VALUES (%(id)s, %(project_id)s, %(team_id)s, %(session_id)s, 'session_summary', %(session_id)s, %(source_run)s, %(session_id)s,
            %(job_type)s, %(idempotency_key)s, %(api_key_id)s, %(actor_id)s, %(source_adapter)s, %(request_id)s, clock_timestamp())
    RETURNING {JOB_COLUMNS}
    """,
)


LOCK_JOBS = Query(
    int,
    """
    WITH locked AS MATERIALIZED (
        SELECT id FROM observation_generation_jobs
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
         ORDER BY id FOR UPDATE
    )
    SELECT count(*) FROM locked
    """,
    prepare=False,
)

LOCK_LANES = Query(
    int,
    """
    WITH locked AS MATERIALIZED (
        SELECT lane FROM generation_lanes
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
         ORDER BY lane FOR UPDATE
    )
    SELECT count(*) FROM locked
    """,
    prepare=False,
)


LOCK_LANE = Query(
    bool,
    "SELECT claim IS NOT NULL FROM generation_lanes WHERE lane = %(lane)s AND team_id = %(team_id)s FOR UPDATE",
)


async def insert_steward_jobs(conn: Conn, rows: Sequence[object], *, max_open: int, max_open_of_project: int) -> list[UUID]:
    """Queue jobs of the steward, in their order, as far as the bounds allow; return the ids of those that are new."""
    return await INSERT_STEWARD_JOBS.all(conn, rows=Jsonb(list(rows)), max_open=max_open, max_open_of_project=max_open_of_project)


# Lanes without an exhausted budget; a budget that was raised or deleted is not exhausted.
@unprepared_query("""
    WITH held AS (
        SELECT l.lane FROM generation_lanes l
         WHERE l.held_for = 'budget' AND l.worker_id IS NULL AND (%(team_id)s::uuid IS NULL OR l.team_id = %(team_id)s)
           AND NOT EXISTS (
               SELECT FROM budgets b
                WHERE b.team_id = l.team_id AND (b.project_id IS NULL OR b.project_id = l.project_id)
                  AND b.exhausted_at >= date_trunc(b.period, now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')
         ORDER BY l.lane FOR UPDATE OF l
    )
    UPDATE generation_lanes l SET held_until = NULL, held_reason = NULL, held_for = NULL, due_at = now()
      FROM held WHERE l.lane = held.lane
    """)
async def make_affordable_lanes_due(conn: Conn, team_id: UUID | None = None) -> RowCount:
    """Make the lanes due whose budget allows calls again, of a team or of all; return their number."""
    ...


@query(f"""
    SELECT {JOB_COLUMNS}
      FROM observation_generation_jobs WHERE id = ANY(%(job_ids)s) AND team_id = %(team_id)s
    """)
async def jobs(conn: Conn, team_id: UUID, job_ids: Sequence[UUID]) -> list[Job]: ...


async def jobs_of_events(conn: Conn, team_id: UUID, event_ids: Sequence[UUID]) -> dict[UUID, Job]:
    """The job of each event that has one, by the event's id."""
    jobs = await JOBS_OF_EVENTS.all(conn, event_ids=list(event_ids), team_id=team_id)
    return {job.source_id: job for job in jobs}


@query(f"""
    SELECT {JOB_COLUMNS}
      FROM observation_generation_jobs
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND source_type = 'session_summary' AND source_id = %(session_id)s
     ORDER BY source_run DESC LIMIT 1
    """)
async def last_summary_job(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID) -> Job | None: ...


@query("""
    WITH summary AS (
        SELECT max(seq) AS seq, max(created_at) AS created_at FROM observation_generation_jobs
         WHERE id = %(summary_job_id)s AND team_id = %(team_id)s
    )
    SELECT EXISTS (SELECT FROM observation_generation_jobs j
                    WHERE j.server_session_id = %(session_id)s AND j.team_id = %(team_id)s AND j.source_type = 'agent_event'
                      AND j.seq > coalesce((SELECT seq FROM summary), 0))
        OR EXISTS (SELECT FROM turns p LEFT JOIN agent_events e ON e.id = p.agent_event_id AND e.team_id = p.team_id
                    WHERE p.server_session_id = %(session_id)s AND p.team_id = %(team_id)s
                      AND coalesce(e.received_at, p.created_at) > coalesce((SELECT created_at FROM summary), '-infinity'))
    """)
async def news_since(conn: Conn, team_id: UUID, session_id: UUID, summary_job_id: UUID | None) -> bool:
    """Whether the session got events or prompts since that summary was requested; without one, since it started."""
    ...


# Events are counted up to `max_events`; a session whose events wait for its end gets no earlier summary. The seconds are those of
# its agent, also when all of it arrives at once.
@query(f"""
    WITH summary AS (
        SELECT max(seq) AS seq, max(created_at) AS created_at FROM observation_generation_jobs
         WHERE id = %(summary_job_id)s AND team_id = %(team_id)s
    )
    SELECT (SELECT count(*) FROM (SELECT FROM observation_generation_jobs j
                                    JOIN agent_events e ON e.id = j.agent_event_id AND e.team_id = j.team_id AND {IS_WORK}
                                   WHERE j.server_session_id = %(session_id)s AND j.team_id = %(team_id)s
                                     AND j.source_type = 'agent_event' AND j.seq > coalesce(summary.seq, 0)
                                   LIMIT %(max_events)s) counted)::integer AS events,
           EXISTS (SELECT FROM observation_generation_jobs j
                    WHERE j.lane = %(session_id)s AND j.team_id = %(team_id)s AND j.phase = 'open' AND j.status = 'queued'
                      AND j.source_type = 'agent_event' AND j.waits_for_end) AS waits_for_end,
           extract(epoch FROM time_of_event(coalesce(%(occurred_at)s::timestamptz, now()), now())
                              - coalesce((SELECT max(time_of_event(e.occurred_at, e.received_at)) FROM agent_events e
                                           WHERE e.project_id = (SELECT s.project_id FROM server_sessions s
                                                                  WHERE s.id = %(session_id)s AND s.team_id = %(team_id)s)
                                             AND e.server_session_id = %(session_id)s AND e.team_id = %(team_id)s
                                             AND summary.created_at IS NOT NULL AND e.received_at <= summary.created_at
                                             AND %(occurred_at)s::timestamptz IS NOT NULL),
                                         summary.created_at, %(started_at)s))::float8 AS seconds
      FROM summary
    """)
async def work_since(
    conn: Conn,
    team_id: UUID,
    session_id: UUID,
    summary_job_id: UUID | None,
    *,
    started_at: datetime,
    occurred_at: datetime | None,
    max_events: int,
) -> Work:
    """What the session has done since that summary was requested; without one, since it started. Counts up to `max_events`."""
    ...


async def insert_summary_job(
    conn: Conn,
    job_origin: JobOrigin,
    *,
    job_id: UUID,
    project_id: UUID,
    session_id: UUID,
    source_run: int,
    source_adapter: str,
    idempotency_key: str,
) -> Job:
    """Insert the job of a session's summary. The caller holds the session's lock and wakes its lane."""
    return await INSERT_SUMMARY_JOB.one(
        conn,
        id=job_id,
        project_id=project_id,
        team_id=job_origin.team_id,
        session_id=session_id,
        source_run=source_run,
        job_type=JOB_FOR_SUMMARY,
        idempotency_key=idempotency_key,
        api_key_id=job_origin.api_key_id,
        actor_id=job_origin.actor_id,
        source_adapter=source_adapter,
        request_id=job_origin.request_id,
    )


@query("""
    INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
    VALUES (%(lane)s, %(team_id)s, %(project_id)s, now())
    ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at))
    RETURNING lane
    """)
async def make_lane_due(conn: Conn, lane: UUID, team_id: UUID, project_id: UUID) -> None: ...


async def lock_all(conn: Conn, team_id: UUID, project_id: UUID | None) -> None:
    """Lock all jobs, then all lanes, of the project, or of the team without one."""
    await LOCK_JOBS.one(conn, team_id=team_id, project_id=project_id)
    await LOCK_LANES.one(conn, team_id=team_id, project_id=project_id)


async def lock_lane(conn: Conn, team_id: UUID, lane: UUID) -> bool:
    """Lock the lane, if there is one; whether a worker holds it."""
    return bool(await LOCK_LANE.first(conn, team_id=team_id, lane=lane))


# Deletes their events by cascade.
@unprepared_query("""
    DELETE FROM observation_generation_jobs
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase_jobs(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete those of the project, or of the team without one; return their number."""
    ...


@unprepared_query("""
    DELETE FROM generation_lanes
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase_lanes(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete those of the project, or of the team without one; return their number."""
    ...
