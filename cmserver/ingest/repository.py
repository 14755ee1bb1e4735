"""The one statement of ingest: events, their jobs and their lanes, together or not at all.

This room owns no table. It writes three rooms' tables because one statement is the guarantee (an event, its job and their audit
rows commit together) and the speed; the team is set inside it, so that row-level security holds in autocommit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cmserver.base.sql import Conn, Query
from cmserver.generation.model import JOB_FOR_EVENT, Asker
from cmserver.ingest.model import Row, Written

OWNS: set[str] = set()
BORROWS = {"agent_events", "observation_generation_jobs", "generation_lanes", "audit_log"}

# When the event was there already, nothing is returned for it; whoever calls asks for it in a second statement, since this
# one could not see a twin that committed a moment ago. Rows are inserted in order of their keys: two batches cannot deadlock.
# The audit log gets two rows for each project, whatever the number of events. They stand last in the text and so are written
# before the lanes are, whose locks others wait for.
INGEST = Query(
    Written,
    """
    WITH tenant AS MATERIALIZED (
        SELECT set_config('cmserver.team_id', %(team_id)s::uuid::text, true)
    ), input AS MATERIALIZED (
        SELECT r.* FROM tenant, jsonb_to_recordset(%(rows)s::jsonb) AS r(
               id uuid, job_id uuid, lane uuid, project_id uuid, server_session_id uuid, source_adapter text, source_event_id text,
               idempotency_key text, job_key text, event_type text, platform_source text, origin text, generate boolean,
               size_chars integer, payload jsonb, metadata jsonb, occurred_at timestamptz, place integer,
               delay_seconds double precision, at_most integer, waits_for_end boolean)
    ), event AS (
        INSERT INTO agent_events (id, project_id, team_id, server_session_id, source_adapter, source_event_id, idempotency_key,
                                  event_type, platform_source, origin, generate, size_chars, payload, metadata, occurred_at)
        SELECT id, project_id, %(team_id)s, server_session_id, source_adapter, source_event_id, idempotency_key,
               event_type, platform_source, origin, generate, size_chars, payload, metadata, occurred_at
          FROM input ORDER BY idempotency_key
        ON CONFLICT (idempotency_key) DO NOTHING
        RETURNING id, received_at
    ), job AS (
        INSERT INTO observation_generation_jobs
               (id, project_id, team_id, lane, agent_event_id, source_type, source_id, server_session_id, job_type, idempotency_key,
                max_attempts, size_chars, api_key_id, actor_id, source_adapter, request_id, waits_for_end)
        SELECT i.job_id, i.project_id, %(team_id)s, i.lane, i.id, 'agent_event', i.id, i.server_session_id, %(job_type)s, i.job_key,
               %(max_attempts)s, i.size_chars, %(api_key_id)s, %(actor_id)s, i.source_adapter, %(request_id)s, i.waits_for_end
          FROM input i JOIN event e ON e.id = i.id
         WHERE i.generate ORDER BY i.place
        RETURNING id
    ), lane AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at, at_most)
        SELECT i.lane, %(team_id)s, i.project_id, now() + make_interval(secs => min(i.delay_seconds)), min(i.at_most)
          FROM job JOIN input i ON i.job_id = job.id GROUP BY i.lane, i.project_id ORDER BY i.lane
        ON CONFLICT (lane) DO UPDATE
           SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at)), at_most = excluded.at_most
    ), audit AS (
        INSERT INTO audit_log (team_id, project_id, actor_id, api_key_id, request_id, action, resource_type, resource_id, details)
        SELECT %(team_id)s, n.project_id, %(actor_id)s, %(api_key_id)s, %(request_id)s, a.action, a.type, a.id, a.details
          FROM (SELECT i.project_id, count(*) AS events, jsonb_agg(i.id ORDER BY i.place) AS event_ids,
                       count(*) FILTER (WHERE i.generate) AS jobs,
                       jsonb_agg(i.job_id ORDER BY i.place) FILTER (WHERE i.generate) AS job_ids
                  FROM input i JOIN event e ON e.id = i.id GROUP BY i.project_id) n
         CROSS JOIN LATERAL (VALUES
               (n.events, 'events.received', CASE WHEN n.events = 1 THEN 'event' ELSE 'event_batch' END,
                CASE WHEN n.events = 1 THEN n.event_ids ->> 0 END, jsonb_build_object('events', n.event_ids)),
               (n.jobs, 'jobs.queued', CASE WHEN n.jobs = 1 THEN 'generation_job' ELSE 'event_batch' END,
                CASE WHEN n.jobs = 1 THEN n.job_ids ->> 0 END, jsonb_build_object('jobs', n.job_ids))
               ) AS a (count, action, type, id, details)
         WHERE a.count > 0
    )
    SELECT id, received_at FROM event
    """,
    prepare=True,
)

# The same for a single event, which is the common case: no JSON to take apart.
INGEST_ONE = Query(
    Written,
    """
    WITH tenant AS MATERIALIZED (
        SELECT set_config('cmserver.team_id', %(team_id)s::uuid::text, true)
    ), event AS (
        INSERT INTO agent_events (id, project_id, team_id, server_session_id, source_adapter, source_event_id, idempotency_key,
                                  event_type, platform_source, origin, generate, size_chars, payload, metadata, occurred_at)
        SELECT %(id)s, %(project_id)s, %(team_id)s, %(server_session_id)s, %(source_adapter)s, %(source_event_id)s,
               %(idempotency_key)s, %(event_type)s, %(platform_source)s, %(origin)s, %(generate)s, %(size_chars)s,
               %(payload)s::jsonb, %(metadata)s::jsonb, %(occurred_at)s
          FROM tenant
        ON CONFLICT (idempotency_key) DO NOTHING
        RETURNING id, received_at
    ), job AS (
        INSERT INTO observation_generation_jobs
               (id, project_id, team_id, lane, agent_event_id, source_type, source_id, server_session_id, job_type, idempotency_key,
                max_attempts, size_chars, api_key_id, actor_id, source_adapter, request_id, waits_for_end)
        SELECT %(job_id)s, %(project_id)s, %(team_id)s, %(lane)s, id, 'agent_event', id, %(server_session_id)s, %(job_type)s,
               %(job_key)s, %(max_attempts)s, %(size_chars)s, %(api_key_id)s, %(actor_id)s, %(source_adapter)s, %(request_id)s,
               %(waits_for_end)s
          FROM event WHERE %(generate)s
        RETURNING lane
    ), lane AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at, at_most)
        SELECT lane, %(team_id)s, %(project_id)s, now() + make_interval(secs => %(delay_seconds)s::float8), %(at_most)s FROM job
        ON CONFLICT (lane) DO UPDATE
           SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at)), at_most = excluded.at_most
    ), audit AS (
        INSERT INTO audit_log (team_id, project_id, actor_id, api_key_id, request_id, action, resource_type, resource_id, details)
        SELECT %(team_id)s, %(project_id)s, %(actor_id)s, %(api_key_id)s, %(request_id)s, a.action, a.type, a.id::text, a.details
          FROM event
         CROSS JOIN (VALUES
               (true, 'events.received', 'event', %(id)s, jsonb_build_object('events', jsonb_build_array(%(id)s))),
               (%(generate)s, 'jobs.queued', 'generation_job', %(job_id)s,
                jsonb_build_object('jobs', jsonb_build_array(%(job_id)s)))
               ) AS a (wanted, action, type, id, details)
         WHERE a.wanted
    )
    SELECT id, received_at FROM event
    """,
    prepare=True,
)


async def ingest(conn: Conn, asker: Asker, rows: Sequence[Row]) -> list[Written]:
    """Store the rows and what belongs to them; those that are new."""
    return await INGEST.all(
        conn,
        rows=msgspec.json.encode(rows).decode(),
        team_id=asker.team_id,
        api_key_id=asker.api_key_id,
        actor_id=asker.actor_id,
        request_id=asker.request_id,
        max_attempts=asker.max_attempts,
        job_type=JOB_FOR_EVENT,
    )


async def ingest_one(conn: Conn, asker: Asker, row: Row) -> Written | None:
    """Like `ingest` for one row; None when the event was there already."""
    return await INGEST_ONE.first(
        conn,
        id=row.id,
        job_id=row.job_id,
        lane=row.lane,
        project_id=row.project_id,
        server_session_id=row.server_session_id,
        source_adapter=row.source_adapter,
        source_event_id=row.source_event_id,
        idempotency_key=row.idempotency_key,
        job_key=row.job_key,
        event_type=row.event_type,
        platform_source=row.platform_source,
        origin=row.origin,
        generate=row.generate,
        size_chars=row.size_chars,
        payload=bytes(row.payload).decode(),
        metadata=msgspec.json.encode(row.metadata).decode(),
        occurred_at=row.occurred_at,
        team_id=asker.team_id,
        api_key_id=asker.api_key_id,
        actor_id=asker.actor_id,
        request_id=asker.request_id,
        max_attempts=asker.max_attempts,
        job_type=JOB_FOR_EVENT,
        delay_seconds=row.delay_seconds,
        at_most=row.at_most,
        waits_for_end=row.waits_for_end,
    )
