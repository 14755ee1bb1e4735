-- A database as it is after a year. The temporary table c says how many events, and whose: team_id, project_id, key_id, events,
-- per_session. A thing of each kind and the next one a second later, as if they had come in order, up to now. Every 200th job has
-- failed, the last 200 wait. Without triggers and foreign keys: the rows are what the program would have written.
SET session_replication_role = replica;

CREATE TEMP TABLE s AS
SELECT n, uuidv7(interval '1 second' * (n * per_session - events)) AS id,
       now() - interval '1 second' * (events - n * per_session) AS at, project_id, team_id
  FROM c, generate_series(1, events / per_session) n;

CREATE TEMP TABLE e AS
SELECT i.n, uuidv7(interval '1 second' * (i.n - events)) AS id, uuidv7(interval '1 second' * (i.n - events)) AS job, s.id AS session,
       now() - interval '1 second' * (events - i.n) AS at, c.project_id, c.team_id, c.key_id,
       CASE WHEN i.n > events - 200 THEN 'queued' WHEN i.n % 200 = 0 THEN 'failed' ELSE 'completed' END AS status
  FROM c, generate_series(1, events) AS i(n) JOIN s ON s.n = 1 + (i.n - 1) / (SELECT per_session FROM c);

INSERT INTO server_sessions (id, project_id, team_id, external_session_id, started_at, ended_at, idle_from, created_at)
SELECT id, project_id, team_id, 'crowd-' || n, at, now(), NULL, at FROM s;

INSERT INTO agent_events (id, project_id, team_id, server_session_id, source_adapter, idempotency_key, event_type, origin, generate,
                          size_chars, payload, occurred_at, received_at, created_at)
SELECT id, project_id, team_id, session, 'hook', 'crowd:' || n, 'PostToolUse', 'hook', true, 120,
       jsonb_build_object('tool_name', 'Edit', 'tool_input', jsonb_build_object('file_path', '/home/dev/orders/file' || n % 997)),
       at, at, at
  FROM e ORDER BY n;

INSERT INTO observation_generation_jobs
       (id, project_id, team_id, lane, agent_event_id, source_type, source_id, server_session_id, job_type, status, idempotency_key,
        attempts, completed_at, failed_at, outcome, last_error, size_chars, created_at, updated_at)
SELECT job, project_id, team_id, session, id, 'agent_event', id, session, 'observation_generate_for_event', status, 'crowd:' || n,
       (status <> 'queued')::int, CASE WHEN status = 'completed' THEN at END, CASE WHEN status = 'failed' THEN at END,
       CASE WHEN status = 'completed' THEN 'skipped' END, CASE WHEN status = 'failed' THEN '{"reason": "refused"}'::jsonb END,
       120, at, at
  FROM e ORDER BY n;

INSERT INTO observation_generation_jobs
       (id, project_id, team_id, lane, source_type, source_id, server_session_id, job_type, status, idempotency_key, attempts,
        completed_at, outcome, created_at, updated_at)
SELECT uuidv7(at - now()), project_id, team_id, id, 'session_summary', id, id, 'observation_generate_session_summary', 'completed',
       'crowd-summary:' || n, 1, at, 'observed', at, at
  FROM s ORDER BY n;

INSERT INTO observation_generation_job_events
       (team_id, project_id, generation_job_id, event_type, status_after, attempt, created_at)
SELECT team_id, project_id, job, kind, kind, 1, at
  FROM e CROSS JOIN unnest(ARRAY['queued', 'processing', 'completed']) kind ORDER BY n;

INSERT INTO audit_log (team_id, project_id, actor_id, api_key_id, action, resource_type, resource_id, created_at)
SELECT team_id, project_id, 'bench', key_id, 'events.received', 'event', id::text, at
  FROM e ORDER BY n;

-- The words that search looks up are not left out.
ALTER TABLE observations ENABLE ALWAYS TRIGGER observations_words;
INSERT INTO observations (id, number, project_id, team_id, server_session_id, kind, type, origin, title, narrative, facts,
                          files_modified, content, read_tokens, discovery_tokens, created_by_job_id, created_at, updated_at)
SELECT uuidv7(at - now()), row_number() OVER (ORDER BY n), project_id, team_id, session,
       CASE WHEN n % 50 = 0 THEN 'summary' ELSE 'observation' END, (ARRAY['change', 'bugfix', 'discovery', 'feature'])[1 + n % 4],
       'model', 'Changed file' || n % 997 || ' of the orders client',
       'The pause between two attempts is doubled each time, up to ' || n, ARRAY['attempt ' || n % 13],
       ARRAY['src/orders/file' || n % 997 || '.py'], 'Changed file' || n, 40, 400, job, at, at
  FROM e WHERE n % 5 = 0;
ALTER TABLE observations ENABLE TRIGGER observations_words;

INSERT INTO observation_sources
       (id, team_id, project_id, observation_id, agent_event_id, generation_job_id, source_type, source_id)
SELECT uuidv7(), o.team_id, o.project_id, o.id, e.id, e.job, 'agent_event', e.id
  FROM observations o JOIN e ON e.job = o.created_by_job_id WHERE o.kind = 'observation';

INSERT INTO observation_counters (team_id, last_number)
SELECT c.team_id, (SELECT count(*) FROM observations) FROM c
    ON CONFLICT (team_id) DO UPDATE SET last_number = excluded.last_number;
