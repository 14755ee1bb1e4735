-- Lists of jobs, the queue's figures, and a lifecycle log that says "worker lost" once for each loss.
--
-- Why: a list of jobs asks for one team or one project, newest first, and mostly for one status. The index it had began with the
-- status and had no order after the project, so a page of a team with 900,000 jobs sorted them all. Its two successors are read
-- backwards, one range for each of the five states, and a page costs the same in a queue of a million; the figures are counted from
-- them alone. Their WHERE is true of every job and stands in the queries that use them: it keeps them out of foreign keys' checks, for
-- which they would look as good as the index that is meant for it, being younger (batches of events came in at a tenth of the rate). Summaries and
-- reindex jobs, a twentieth of the rows, have a partial index of their own, which an event's job never enters.
-- A job that failed because its key was revoked would fail again when it is sent back: it loses that key now, since whoever sends it
-- back answers for it. (The law of a job's life is else what it was.)
-- What the log said of a job that a worker gave back unused was its former error once more: it says so now.
-- The previous release keeps working: it asks for no more than these indexes and functions do.
-- How long: three indexes on the jobs and one on their log, some seconds per million rows; writing to both waits meanwhile.

DROP INDEX observation_jobs_status;
CREATE INDEX observation_jobs_team ON observation_generation_jobs (team_id, status, created_at, id)
    WHERE created_at > '-infinity';
-- The team beside it: a project's jobs are counted from the index alone, under the policy too.
CREATE INDEX observation_jobs_project ON observation_generation_jobs (project_id, status, created_at, id) INCLUDE (team_id)
    WHERE created_at > '-infinity';
CREATE INDEX observation_jobs_others
    ON observation_generation_jobs (team_id, created_at, id, project_id, source_type, status) WHERE source_type <> 'agent_event';
CREATE INDEX observation_job_events_recovered
    ON observation_generation_job_events (team_id, project_id) WHERE details ->> 'reason' = 'worker lost';

CREATE OR REPLACE FUNCTION generation_job_law() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT ((OLD.status = 'queued' AND NEW.status IN ('processing', 'cancelled'))
         OR (OLD.status = 'processing' AND NEW.status IN ('completed', 'failed', 'cancelled'))
         OR (OLD.status = 'processing' AND NEW.status = 'queued' AND NEW.attempts < NEW.max_attempts)
         OR (OLD.status IN ('failed', 'cancelled') AND NEW.status = 'queued')) THEN
        RAISE EXCEPTION 'a generation job cannot go from % to % (job %, attempt % of %)',
            OLD.status, NEW.status, NEW.id, NEW.attempts, NEW.max_attempts USING ERRCODE = 'check_violation',
            CONSTRAINT = 'generation_job_law';
    END IF;
    IF OLD.status IN ('failed', 'cancelled') THEN
        NEW.max_attempts := greatest(NEW.max_attempts, NEW.attempts + 3);
        NEW.next_attempt_at := NULL;
        NEW.cancel_requested_at := NULL;
        NEW.generation_run_id := NULL; -- ask again; the old answer stays with its run
        IF OLD.last_error ->> 'reason' = 'key_revoked' AND NEW.api_key_id = OLD.api_key_id THEN
            NEW.api_key_id := NULL; -- whoever sends it back answers for it
        END IF;
    END IF;
    IF NEW.status <> 'processing' THEN
        NEW.locked_at := NULL;
        NEW.locked_by := NULL;
        NEW.worker_id := NULL;
    END IF;
    NEW.completed_at := CASE WHEN NEW.status = 'completed' THEN now() END;
    NEW.failed_at := CASE WHEN NEW.status = 'failed' THEN now() END;
    NEW.cancelled_at := CASE WHEN NEW.status = 'cancelled' THEN now() END;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION generation_job_log_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_generation_job_events
           (team_id, project_id, generation_job_id, event_type, status_after, attempt, details)
    SELECT n.team_id, n.project_id, n.id,
           CASE WHEN o.status = 'processing' AND n.status = 'queued' THEN 'retry_scheduled' ELSE n.status END,
           n.status, n.attempts,
           CASE WHEN n.status = 'completed' THEN jsonb_strip_nulls(jsonb_build_object('outcome', n.outcome, 'reason', n.outcome_reason))
                WHEN n.status = 'processing' THEN jsonb_build_object('claim', n.claim, 'by', n.locked_by)
                WHEN o.status = 'processing' AND n.attempts < o.attempts AND n.last_error IS NOT DISTINCT FROM o.last_error
                    THEN '{"reason": "given back"}'
                WHEN o.status = 'processing' AND n.last_error IS NOT NULL THEN n.last_error
                ELSE '{}' END
      FROM new_rows n JOIN old_rows o ON o.id = n.id
     WHERE o.status IS DISTINCT FROM n.status
     ORDER BY n.seq;
    IF EXISTS (SELECT FROM new_rows n JOIN old_rows o ON o.id = n.id
                WHERE n.status = 'queued' AND o.status IN ('failed', 'cancelled')) THEN
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
        SELECT n.lane, n.team_id, n.project_id, now()
          FROM new_rows n JOIN old_rows o ON o.id = n.id
         WHERE n.status = 'queued' AND o.status IN ('failed', 'cancelled')
         GROUP BY n.lane, n.team_id, n.project_id ORDER BY n.lane
        ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at));
    END IF;
    RETURN NULL;
END $$;

-- The same figures as GET /v1/info and `cmserver status`, for every team.
CREATE VIEW queue_totals AS
    SELECT t.name AS team, q.waiting, e.active, q.delayed, q.held, e.completed, e.failed, e.cancelled, r.recovered, q.oldest_waiting
      FROM teams t
      CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE (l.held_until > now()) IS NOT TRUE AND (l.due_at > now()) IS NOT TRUE) AS waiting,
                  count(*) FILTER (WHERE l.due_at > now() AND (l.held_until > now()) IS NOT TRUE) AS delayed,
                  count(*) FILTER (WHERE l.held_until > now()) AS held,
                  now() - min(j.updated_at) FILTER (WHERE (l.held_until > now()) IS NOT TRUE AND (l.due_at > now()) IS NOT TRUE)
                      AS oldest_waiting
             FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
            WHERE j.team_id = t.id AND j.status = 'queued' AND j.created_at > '-infinity') q
      CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE status = 'processing') AS active, count(*) FILTER (WHERE status = 'completed') AS completed,
                  count(*) FILTER (WHERE status = 'failed') AS failed, count(*) FILTER (WHERE status = 'cancelled') AS cancelled
             FROM observation_generation_jobs j
            WHERE j.team_id = t.id AND j.status IN ('processing', 'completed', 'failed', 'cancelled') AND j.created_at > '-infinity') e
      CROSS JOIN LATERAL (
           SELECT count(*) AS recovered FROM observation_generation_job_events j
            WHERE j.team_id = t.id AND j.details ->> 'reason' = 'worker lost') r;
COMMENT ON VIEW queue_totals IS 'Each team''s queue at a glance: what waits, runs, rests and has ended, what came back from lost workers, and how long the oldest has waited.';
