-- The statement that stored a single event on 2026-11-24, on the schema of that day (migrations up to 0027): the yardstick of ingest,
-- which stays as it is when the program's statement changes. Never edited.
WITH tenant AS MATERIALIZED (
    SELECT set_config('cmserver.team_id', %(team_id)s::uuid::text, true) WHERE row_security_active('agent_events')
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
    SELECT %(job_id)s, %(project_id)s, %(team_id)s, %(lane)s, id, 'agent_event', id, %(server_session_id)s, 'observation_generate_for_event',
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
