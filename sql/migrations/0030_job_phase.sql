-- A claim changes no index of its jobs.
--
-- Why: four indexes of the jobs held the status or the worker, so each of the two steps of a job's usual life, queued to processing and
-- processing to completed, made entries in every index anew. Now they hold the phase: `open` while a job is queued or processing, else
-- its status. A claim leaves the phase as it is, and PostgreSQL writes the new version of the row into the same page and into no
-- index (HOT); half of a page is kept free for that, about as much as the indexes that are gone took. What a worker holds is found
-- by the lanes it holds: a job is in progress only while its lane is.
-- A job that is in progress in a lane that nobody holds, which only a hand could make, is put back by wake_sleeping_lanes().
-- The previous release keeps working; while many jobs wait, its claims and lists are slower until it is replaced.
-- How long: the jobs are written once more, and five indexes made, some ten seconds per million rows; everything else waits meanwhile.

ALTER TABLE observation_generation_jobs ADD COLUMN phase text NOT NULL
    GENERATED ALWAYS AS (CASE WHEN status IN ('queued', 'processing') THEN 'open' ELSE status END) STORED;
COMMENT ON COLUMN observation_generation_jobs.phase IS '`open` while queued or processing, else the status: what indexes hold, so that a claim changes none.';
ALTER TABLE observation_generation_jobs SET (fillfactor = 50);

DROP INDEX observation_jobs_lane, observation_jobs_held, observation_jobs_team, observation_jobs_project, observation_jobs_others;
CREATE INDEX observation_jobs_lane ON observation_generation_jobs (lane, seq) WHERE phase = 'open';
-- The WHERE is true of every job: see migration 0008.
CREATE INDEX observation_jobs_team ON observation_generation_jobs (team_id, phase, created_at, id) WHERE created_at > '-infinity';
CREATE INDEX observation_jobs_project ON observation_generation_jobs (project_id, phase, created_at, id) INCLUDE (team_id)
    WHERE created_at > '-infinity';
CREATE INDEX observation_jobs_others
    ON observation_generation_jobs (team_id, created_at, id, project_id, source_type, phase) WHERE source_type <> 'agent_event';

CREATE OR REPLACE FUNCTION requeue_stale(hard_limit_seconds double precision DEFAULT 300) RETURNS SETOF uuid LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    WITH stale AS (
        SELECT j.id FROM generation_lanes l
          JOIN observation_generation_jobs j ON j.lane = l.lane AND j.phase = 'open' AND j.status = 'processing'
         WHERE l.worker_id IS NOT NULL
           AND (l.locked_at < now() - make_interval(secs => hard_limit_seconds) OR l.worker_id NOT IN (SELECT live_workers()))
           AND (j.locked_at < now() - make_interval(secs => hard_limit_seconds) OR j.worker_id NOT IN (SELECT live_workers()))
         ORDER BY j.id FOR UPDATE OF j SKIP LOCKED)
    UPDATE observation_generation_jobs j
       SET status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                         WHEN j.attempts < j.max_attempts THEN 'queued' ELSE 'failed' END,
           last_error = jsonb_build_object('reason', 'worker lost', 'worker', j.locked_by, 'claim', j.claim)
      FROM stale WHERE j.id = stale.id RETURNING j.id;

    -- A lane goes back when its worker is gone and none of its batch is still held by a transaction that may yet commit.
    WITH free AS (
        SELECT l.lane FROM generation_lanes l
         WHERE l.worker_id IS NOT NULL
           AND (l.locked_at < now() - make_interval(secs => hard_limit_seconds) OR l.worker_id NOT IN (SELECT live_workers()))
           AND NOT EXISTS (SELECT FROM observation_generation_jobs j
                            WHERE j.worker_id = l.worker_id AND j.lane = l.lane AND j.phase = 'open' AND j.status = 'processing')
         ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED)
    UPDATE generation_lanes l
       SET worker_id = NULL, claim = NULL, due_at = greatest(l.held_until, now())
      FROM free WHERE l.lane = free.lane;

    DELETE FROM generation_workers g WHERE NOT EXISTS (SELECT FROM procrastinate_workers w WHERE w.id = g.worker_id);
END $$;

CREATE OR REPLACE FUNCTION wake_sleeping_lanes() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    woken_count bigint;
BEGIN
    WITH lost AS (
        SELECT j.id FROM observation_generation_jobs j
         WHERE j.phase = 'open' AND j.status = 'processing' AND j.worker_id NOT IN (SELECT live_workers())
           AND NOT EXISTS (SELECT FROM generation_lanes l WHERE l.lane = j.lane AND l.claim = j.claim)
         ORDER BY j.id FOR UPDATE OF j SKIP LOCKED)
    UPDATE observation_generation_jobs j
       SET status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                         WHEN j.attempts < j.max_attempts THEN 'queued' ELSE 'failed' END,
           last_error = jsonb_build_object('reason', 'worker lost', 'worker', j.locked_by, 'claim', j.claim)
      FROM lost WHERE j.id = lost.id;

    WITH sleeping AS (
        SELECT j.lane, min(j.team_id::text)::uuid AS team_id, min(j.project_id::text)::uuid AS project_id
          FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
         WHERE j.phase = 'open' AND j.status = 'queued' AND (l.lane IS NULL OR (l.worker_id IS NULL AND l.due_at IS NULL))
         GROUP BY j.lane ORDER BY j.lane
    ), woken AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
        SELECT lane, team_id, project_id, now() FROM sleeping ORDER BY lane
        ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at)) RETURNING 1
    ) SELECT count(*) INTO woken_count FROM woken;
    RETURN woken_count;
END $$;

CREATE OR REPLACE VIEW lane_overview AS
    SELECT l.lane, t.name AS team, p.canonical_id AS project,
           CASE WHEN l.worker_id IS NOT NULL THEN 'working' WHEN l.held_until > now() THEN 'held'
                WHEN l.due_at <= now() THEN 'due' WHEN l.due_at IS NOT NULL THEN 'waiting' ELSE 'idle' END AS state,
           l.due_at, l.held_until, l.held_reason, l.worker_id, l.locked_at,
           (SELECT count(*) FROM observation_generation_jobs j
             WHERE j.lane = l.lane AND j.phase = 'open' AND j.status = 'queued') AS queued
      FROM generation_lanes l LEFT JOIN projects p ON p.id = l.project_id LEFT JOIN teams t ON t.id = l.team_id;

CREATE OR REPLACE VIEW queue_totals AS
    SELECT t.name AS team, q.waiting, q.active, q.delayed, q.held, e.completed, e.failed, e.cancelled, r.recovered, q.oldest_waiting
      FROM teams t
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE o.state = 'waiting') AS waiting, count(*) FILTER (WHERE o.state = 'delayed') AS delayed,
                  count(*) FILTER (WHERE o.state = 'held') AS held, count(*) FILTER (WHERE o.state = 'active') AS active,
                  now() - min(o.updated_at) FILTER (WHERE o.state = 'waiting') AS oldest_waiting
             FROM (SELECT j.updated_at,
                          CASE WHEN j.status = 'processing' THEN 'active' WHEN l.held_until > now() THEN 'held'
                               WHEN l.due_at > now() THEN 'delayed' ELSE 'waiting' END AS state
                     FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
                    WHERE j.team_id = t.id AND j.phase = 'open' AND j.created_at > '-infinity') o) q
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE j.phase = 'completed') AS completed, count(*) FILTER (WHERE j.phase = 'failed') AS failed,
                  count(*) FILTER (WHERE j.phase = 'cancelled') AS cancelled
             FROM observation_generation_jobs j
            WHERE j.team_id = t.id AND j.phase IN ('completed', 'failed', 'cancelled') AND j.created_at > '-infinity') e
     CROSS JOIN LATERAL (
           SELECT count(*) AS recovered FROM observation_generation_job_events j
            WHERE j.team_id = t.id AND j.details ->> 'reason' = 'worker lost') r;
