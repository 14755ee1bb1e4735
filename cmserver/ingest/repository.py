"""The one statement of ingest: events, their jobs and their lanes, together or not at all.

This room owns no table. It writes those of three rooms, because one statement is fast and commits an event, its job and their audit
rows together; it sets the team itself, so that row-level security holds in autocommit.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from cmserver.base.sql import Conn, Query
from cmserver.generation.model import JOB_FOR_EVENT, JobOrigin
from cmserver.ingest.model import IngestRequest, NewEvent, StoredAt

OWNS: set[str] = set()
BORROWS = {"agent_events", "observation_generation_jobs", "generation_lanes", "audit_log"}

# Whoever may not read all words writes all the same: nothing but ids and times comes back. Nothing is returned for an event that
# was there already; the caller asks for it in a second statement, since this one cannot see a twin that has just committed. Rows
# are inserted in the order of their keys, so that two batches cannot deadlock. The audit log gets a row for each request and
# project, which names the events and their jobs. It stands last in the text, and so is written before the lanes, whose locks
# others wait for; a statement of several requests waits for a lane at most `lock_milliseconds` (0: as long as it takes). A lane
# that is due as it is is locked, and not written again; one of another team is written, and so refused by row-level security,
# which does not look at what is only locked.
INGEST = Query(
    StoredAt,
    """
    WITH tenant AS MATERIALIZED (
        SELECT set_config('cmserver.team_id', %(team_id)s::uuid::text, true), set_config('cmserver.words', '', true),
               CASE WHEN %(lock_milliseconds)s > 0 THEN set_config('lock_timeout', %(lock_milliseconds)s::text, true) END
         WHERE row_security_active('agent_events')
    ), request AS MATERIALIZED (
        SELECT q.* FROM tenant, ROWS FROM (jsonb_to_recordset(%(requests)s::jsonb) AS (
               api_key_id uuid, actor_id text, request_id text, events jsonb)) WITH ORDINALITY
               AS q (api_key_id, actor_id, request_id, events, request)
    ), input AS MATERIALIZED (
        SELECT q.request, q.api_key_id, q.actor_id, q.request_id, r.*
          FROM request q CROSS JOIN LATERAL jsonb_to_recordset(q.events) AS r(
               id uuid, job_id uuid, lane uuid, project_id uuid, server_session_id uuid, source_adapter text, source_event_id text,
               idempotency_key text, event_type text, platform_source text, origin text, generate boolean,
               size_chars integer, payload jsonb, metadata jsonb, occurred_at timestamptz, place integer,
               delay_seconds double precision, at_most integer, waits_for_end boolean,
               gather_seconds double precision)
    ), event AS (
        INSERT INTO agent_events (id, project_id, team_id, server_session_id, source_adapter, source_event_id, idempotency_key,
                                  event_type, platform_source, origin, generate, size_chars, payload, metadata, occurred_at)
        SELECT id, project_id, %(team_id)s, server_session_id, source_adapter, source_event_id, idempotency_key,
               event_type, platform_source, origin, generate, size_chars, payload, metadata, occurred_at
          FROM input ORDER BY idempotency_key, request, place
        ON CONFLICT (idempotency_key) DO NOTHING
        RETURNING id, received_at
    ), job AS (
        INSERT INTO observation_generation_jobs
               (id, project_id, team_id, lane, agent_event_id, source_type, source_id, server_session_id, job_type,
                size_chars, api_key_id, actor_id, source_adapter, request_id, waits_for_end, payload)
        SELECT i.job_id, i.project_id, %(team_id)s, i.lane, i.id, 'agent_event', i.id, i.server_session_id, %(job_type)s,
               i.size_chars, i.api_key_id, i.actor_id, i.source_adapter, i.request_id, i.waits_for_end,
               jsonb_strip_nulls(jsonb_build_object('gather_seconds', i.gather_seconds))
          FROM input i JOIN event e ON e.id = i.id
         WHERE i.generate ORDER BY i.request, i.place
        RETURNING id
    ), lane AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at, at_most)
        SELECT i.lane, %(team_id)s, i.project_id, now() + make_interval(secs => min(i.delay_seconds)), min(i.at_most)
          FROM job JOIN input i ON i.job_id = job.id GROUP BY i.lane, i.project_id ORDER BY i.lane
        ON CONFLICT (lane) DO UPDATE
           SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at)), at_most = excluded.at_most
         WHERE l.team_id <> excluded.team_id OR l.at_most IS DISTINCT FROM excluded.at_most
            OR l.due_at IS DISTINCT FROM greatest(l.held_until, least(l.due_at, excluded.due_at))
    ), audit AS (
        INSERT INTO audit_log (team_id, project_id, actor_id, api_key_id, request_id, action, resource_type, resource_id, details)
        SELECT %(team_id)s, i.project_id, i.actor_id, i.api_key_id, i.request_id, 'events.received',
               CASE WHEN count(*) = 1 THEN 'event' ELSE 'event_batch' END,
               CASE WHEN count(*) = 1 THEN min(i.id::text) END,
               jsonb_strip_nulls(jsonb_build_object(
                   'events', jsonb_agg(i.id ORDER BY i.place),
                   'jobs', jsonb_agg(i.job_id ORDER BY i.place) FILTER (WHERE i.generate)))
          FROM input i JOIN event e ON e.id = i.id
         GROUP BY i.request, i.project_id, i.actor_id, i.api_key_id, i.request_id
    )
    SELECT id, received_at FROM event
    """,
    prepare=True,
)

# The same for a single event, which is the common case: without JSON to parse.
INGEST_ONE = Query(
    StoredAt,
    """
    WITH tenant AS MATERIALIZED (
        SELECT set_config('cmserver.team_id', %(team_id)s::uuid::text, true), set_config('cmserver.words', '', true)
         WHERE row_security_active('agent_events')
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
               (id, project_id, team_id, lane, agent_event_id, source_type, source_id, server_session_id, job_type,
                size_chars, api_key_id, actor_id, source_adapter, request_id, waits_for_end, payload)
        SELECT %(job_id)s, %(project_id)s, %(team_id)s, %(lane)s, id, 'agent_event', id, %(server_session_id)s, %(job_type)s,
               %(size_chars)s, %(api_key_id)s, %(actor_id)s, %(source_adapter)s, %(request_id)s, %(waits_for_end)s,
               jsonb_strip_nulls(jsonb_build_object('gather_seconds', %(gather_seconds)s::float8))
          FROM event WHERE %(generate)s
        RETURNING lane
    ), lane AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at, at_most)
        SELECT lane, %(team_id)s, %(project_id)s, now() + make_interval(secs => %(delay_seconds)s::float8), %(at_most)s FROM job
        ON CONFLICT (lane) DO UPDATE
           SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at)), at_most = excluded.at_most
         WHERE l.team_id <> excluded.team_id OR l.at_most IS DISTINCT FROM excluded.at_most
            OR l.due_at IS DISTINCT FROM greatest(l.held_until, least(l.due_at, excluded.due_at))
    ), audit AS (
        INSERT INTO audit_log (team_id, project_id, actor_id, api_key_id, request_id, action, resource_type, resource_id, details)
        SELECT %(team_id)s, %(project_id)s, %(actor_id)s, %(api_key_id)s, %(request_id)s, 'events.received', 'event', id::text,
               CASE WHEN %(generate)s
                    THEN jsonb_build_object('events', jsonb_build_array(id), 'jobs', jsonb_build_array(%(job_id)s::uuid))
                    ELSE jsonb_build_object('events', jsonb_build_array(id)) END
          FROM event
    )
    SELECT id, received_at FROM event
    """,
    prepare=True,
)


async def ingest(conn: Conn, team_id: UUID, requests: Sequence[IngestRequest], *, lock_milliseconds: int = 0) -> list[StoredAt]:
    """Store one team's events; those that are new. LockNotAvailable after `lock_milliseconds`, if that is not 0."""
    rows = msgspec.json.encode(requests).decode()
    return await INGEST.all(conn, team_id=team_id, requests=rows, job_type=JOB_FOR_EVENT, lock_milliseconds=lock_milliseconds)


async def ingest_one(conn: Conn, origin: JobOrigin, event: NewEvent) -> StoredAt | None:
    """Store one event and what belongs to it; None when it was there already."""
    fields = asdict(event) | asdict(origin)
    fields["payload"] = bytes(event.payload).decode()
    fields["metadata"] = msgspec.json.encode(event.metadata).decode()
    return await INGEST_ONE.first(conn, job_type=JOB_FOR_EVENT, **fields)
