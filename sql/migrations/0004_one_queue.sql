-- One queue: what the steward does are jobs of the outbox
--
-- The steward had a queue of its own beside the outbox: its table, its tasks in procrastinate's queue, its leases, its way to try again,
-- its events. Now its jobs are rows of observation_generation_jobs (source_type 'steward'), in the lane of their project, and live by
-- the outbox's claim, lease, retries, cancel and events. What the executors note on the way (decision_made, write_applied and others)
-- stands among the events of the job. `input` of a job's payload says what to do, `trigger` why it is there, `sources` which
-- observations it is about, `decision` what was decided.
-- Jobs and events of before are copied with their ids and times. What waited or ran ends undone (decision `nothing`, reason
-- `upgraded`), and the steward plans it again. Only the jobs by which thresholds are tuned are not copied: they are of no project, and
-- a task of every minute does that work now. Their runs stay.
-- steward_jobs and steward_events go on as views, with the words of Contextify; nobody writes them.
-- A worker of the older version would take a job of the steward for one of events, and ask a model about nothing. So each worker says
-- when it registers whether it knows them (generation_workers.knows_steward): who does not is given no lane of the steward, and as
-- long as such a worker lives nothing is planned. Servers and workers of the older version go on with events, and answer or log an
-- error where they are asked for the steward.
--
-- How long: a minute on a million jobs in the outbox, whose rows are read once for the new conditions; another for each hundred
-- thousand jobs of the steward, of which most databases have a few hundred. The outbox is locked for so long: events that are sent
-- meanwhile wait, and are refused where they would wait too long (503: whoever sent them sends them again).

ALTER TABLE observation_generation_jobs
    DROP CONSTRAINT observation_generation_jobs_source_type_check,
    DROP CONSTRAINT observation_generation_jobs_check,
    ADD CONSTRAINT observation_generation_jobs_source_type_check
        CHECK (source_type IN ('agent_event', 'session_summary', 'observation_reindex', 'turn', 'steward')),
    ADD CONSTRAINT observation_generation_jobs_check
        CHECK (source_type = 'agent_event' AND agent_event_id IS NOT NULL AND source_id = agent_event_id
            OR source_type = 'session_summary' AND agent_event_id IS NULL AND (server_session_id IS NULL
            OR source_id = server_session_id)
            OR source_type IN ('observation_reindex', 'turn', 'steward') AND agent_event_id IS NULL);
ALTER TABLE observation_generation_job_events
    DROP CONSTRAINT observation_generation_job_events_event_type_check,
    ADD CONSTRAINT observation_generation_job_events_event_type_check
        CHECK (event_type IN ('queued', 'processing', 'retry_scheduled', 'completed', 'failed', 'cancelled',
            'model_invoked', 'decision_made', 'write_applied', 'write_skipped', 'run_undone'));
CREATE INDEX observation_jobs_steward ON observation_generation_jobs (team_id, job_type, created_at, id)
    WHERE source_type = 'steward';
CREATE INDEX observation_jobs_steward_ready ON observation_generation_jobs (phase, team_id, lane)
    WHERE source_type = 'steward' AND phase IN ('open', 'failed');
COMMENT ON COLUMN observation_generation_jobs.lane IS 'The session of the job; the project for the steward''s; the job itself when it has neither. One batch of a lane is in progress at any time.';
COMMENT ON TABLE generation_lanes IS 'The ready list: one row a session (or the steward''s work on a project, or a job without a session), claimed by one worker at a time.';
COMMENT ON TABLE observation_generation_job_events IS 'The lifecycle log of jobs, written by a trigger whoever makes the step; and what the steward notes on the way.';

-- What the copied events tell is not told again.
ALTER TABLE observation_generation_jobs DISABLE TRIGGER generation_job_log_insert;
INSERT INTO observation_generation_jobs
       (id, project_id, team_id, lane, source_type, source_id, source_run, job_type, status, attempts, max_attempts, next_attempt_at,
        claim, completed_at, failed_at, cancelled_at, outcome, outcome_reason, last_error, payload, actor_id, source_adapter,
        created_at, updated_at)
SELECT s.id, s.project_id, s.team_id, s.project_id, 'steward', s.step_id,
       row_number() OVER (PARTITION BY s.step_id, s.job_type ORDER BY s.created_at, s.id), s.job_type, s.becomes, s.attempts,
       s.max_attempts, NULL, s.claim,
       CASE WHEN s.becomes = 'completed' THEN coalesce(s.ended_at, now()) END, CASE WHEN s.becomes = 'failed' THEN s.ended_at END,
       CASE WHEN s.becomes = 'cancelled' THEN coalesce(s.ended_at, now()) END,
       CASE WHEN s.becomes = 'completed' THEN 'skipped' END,
       CASE WHEN s.becomes = 'completed' THEN s.decision ->> 'decision' END,
       CASE WHEN s.last_error IS NOT NULL
            THEN jsonb_build_object('reason', split_part(s.last_error, ': ', 1),
                                    'message', coalesce(substring(s.last_error FROM ': (.*)'), s.last_error)) END,
       jsonb_build_object('trigger', s.trigger_reason, 'sources', to_jsonb(s.source_observation_ids), 'input', s.payload)
           || CASE WHEN s.decision IS NULL THEN '{}' ELSE jsonb_build_object('decision', s.decision) END,
       'steward', 'steward', s.created_at, s.updated_at
  FROM (SELECT j.id, j.team_id, j.project_id, j.job_type, j.payload, j.trigger_reason, j.source_observation_ids, j.max_attempts,
               j.claim, j.ended_at, j.last_error, j.created_at, j.updated_at, least(j.attempt_count, j.max_attempts) AS attempts,
               CASE WHEN j.status IN ('queued', 'running') AND j.cancel_requested_at IS NULL
                    THEN '{"decision": "nothing", "reasons": ["upgraded"], "goesOn": true}' ELSE j.decision END AS decision,
               CASE WHEN j.job_type = 'auto_merge' AND j.payload ->> 'suggestionId' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                    THEN (j.payload ->> 'suggestionId')::uuid ELSE j.project_id END AS step_id,
               CASE WHEN j.status = 'running' AND j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                    WHEN j.status IN ('queued', 'running', 'succeeded') THEN 'completed'
                    WHEN j.status = 'dead_letter' THEN 'failed' ELSE j.status END AS becomes
          FROM steward_jobs j WHERE j.project_id IS NOT NULL) s
 ORDER BY s.created_at, s.id;
ALTER TABLE observation_generation_jobs ENABLE TRIGGER generation_job_log_insert;

INSERT INTO observation_generation_job_events
       (team_id, project_id, generation_job_id, event_type, status_after, attempt, details, created_at)
SELECT e.team_id, e.project_id, e.job_id, e.event_type,
       CASE WHEN e.event_type IN ('queued', 'retry_scheduled') THEN 'queued'
            WHEN e.event_type IN ('completed', 'failed', 'cancelled') THEN e.event_type
            WHEN e.event_type = 'run_undone' THEN 'completed' ELSE 'processing' END,
       coalesce((e.data ->> 'attempt')::integer, 0),
       jsonb_strip_nulls(CASE
           WHEN e.run_id IS NOT NULL THEN e.data || jsonb_build_object('run', e.run_id)
           ELSE jsonb_build_object('claim', e.data -> 'claim',
                                   'reason', CASE WHEN e.is_recovery THEN 'worker lost' ELSE split_part(e.data ->> 'error', ': ', 1) END,
                                   'message', substring(e.data ->> 'error' FROM ': (.*)')) END),
       e.created_at
  FROM (SELECT s.id, s.team_id, j.project_id, s.job_id, s.run_id, s.data, s.created_at, s.event_type = 'recovery_detected' AS is_recovery,
               CASE WHEN s.event_type = 'job_created' THEN 'queued' WHEN s.event_type = 'job_claimed' THEN 'processing'
                    WHEN s.event_type = 'job_completed' AND s.data ->> 'status' = 'cancelled' THEN 'cancelled'
                    WHEN s.event_type = 'job_completed' THEN 'completed'
                    WHEN s.event_type NOT IN ('job_failed', 'recovery_detected') THEN s.event_type
                    WHEN s.data ->> 'status' = 'queued' THEN 'retry_scheduled' ELSE 'failed' END AS event_type
          FROM steward_events s JOIN observation_generation_jobs j ON j.id = s.job_id AND j.team_id = s.team_id) e
 ORDER BY e.id;
INSERT INTO observation_generation_job_events (team_id, project_id, generation_job_id, event_type, status_after, attempt, details)
SELECT j.team_id, j.project_id, j.id, j.status, j.status, j.attempts, '{"outcome": "skipped", "reason": "nothing: upgraded"}'
  FROM steward_jobs s JOIN observation_generation_jobs j ON j.id = s.id WHERE s.status IN ('queued', 'running') ORDER BY s.id;

-- Workers of before say nothing, and know nothing of the steward's jobs.
ALTER TABLE generation_workers ADD COLUMN knows_steward boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN generation_workers.knows_steward IS 'Whether the worker knows the steward''s jobs; one of before migration 0004 does not, and is given none.';
-- Without an error: what else that worker claims by the same statement it gets.
CREATE FUNCTION refuse_steward_lane() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM generation_workers g WHERE g.worker_id = NEW.worker_id AND NOT g.knows_steward) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_steward_lane BEFORE UPDATE OF worker_id ON generation_lanes
    FOR EACH ROW WHEN (NEW.worker_id IS NOT NULL AND OLD.worker_id IS NULL AND NEW.lane = NEW.project_id)
    EXECUTE FUNCTION refuse_steward_lane();

-- A run is written when it ends. Without a job it is one of tuning the thresholds of the team.
ALTER TABLE steward_runs DROP CONSTRAINT steward_runs_job_id_team_id_fkey;
ALTER TABLE steward_runs ALTER COLUMN job_id DROP NOT NULL;
UPDATE steward_runs r SET job_id = NULL WHERE NOT EXISTS (SELECT FROM observation_generation_jobs j WHERE j.id = r.job_id);
UPDATE steward_runs r SET project_id = j.project_id
  FROM observation_generation_jobs j WHERE j.id = r.job_id AND j.project_id IS DISTINCT FROM r.project_id;
DELETE FROM steward_runs WHERE status = 'running';
ALTER TABLE steward_runs DROP CONSTRAINT steward_runs_status_check;
ALTER TABLE steward_runs
    ALTER COLUMN status DROP DEFAULT,
    ALTER COLUMN completed_at SET NOT NULL,
    DROP CONSTRAINT steward_runs_check,
    ADD CONSTRAINT steward_runs_status_check CHECK (status IN ('succeeded', 'failed', 'skipped')),
    ADD CONSTRAINT steward_runs_team_id_fkey FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE,
    ADD CONSTRAINT steward_runs_job_id_fkey FOREIGN KEY (job_id, project_id, team_id)
        REFERENCES observation_generation_jobs (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE observation_derivations
    ALTER CONSTRAINT observation_derivations_run_id_team_id_fkey DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE steward_policy_history
    ALTER CONSTRAINT steward_policy_history_run_id_team_id_fkey DEFERRABLE INITIALLY DEFERRED;
COMMENT ON TABLE steward_runs IS 'Each attempt at a job that came to an end: what it looked at and decided, by ids; tokens, duration. Of no job: a tuning of thresholds.';

DROP TABLE steward_events;
DROP TABLE steward_jobs;
DROP SEQUENCE steward_claims;
DROP FUNCTION steward_job_law, steward_job_log, requeue_steward_jobs, wake_steward_jobs;
DELETE FROM procrastinate_jobs WHERE queue_name = 'steward';

-- In the words of Contextify, which `/v1/steward` keeps, too. Of what is asked for who looks decides, so teams stay apart.
CREATE VIEW steward_jobs WITH (security_invoker = true) AS
SELECT j.id, j.team_id, j.project_id, j.job_type, j.source_id, j.phase,
       ARRAY(SELECT s::uuid FROM jsonb_array_elements_text(j.payload -> 'sources') s) AS source_observation_ids,
       j.payload ->> 'trigger' AS trigger_reason, j.payload -> 'input' AS payload,
       CASE WHEN j.status = 'processing' THEN 'running' WHEN j.status = 'completed' THEN 'succeeded'
            WHEN j.status = 'failed' AND j.last_error ->> 'reason' <> 'bad_payload' THEN 'dead_letter' ELSE j.status END AS status,
       j.attempts AS attempt_count, j.max_attempts, coalesce(j.next_attempt_at, j.created_at) AS run_after, j.claim, j.locked_by,
       j.locked_at, j.cancel_requested_at, j.payload -> 'decision' AS decision,
       nullif(concat_ws(': ', j.last_error ->> 'reason', j.last_error ->> 'message'), '') AS last_error, j.created_at, j.updated_at,
       coalesce(j.completed_at, j.failed_at, j.cancelled_at) AS ended_at
  FROM observation_generation_jobs j WHERE j.source_type = 'steward';
COMMENT ON VIEW steward_jobs IS 'The steward''s jobs of the outbox in the words of Contextify; `failed` is a payload that cannot be read, `dead_letter` all else that was given up.';

CREATE VIEW steward_events WITH (security_invoker = true) AS
SELECT e.id, e.team_id, e.generation_job_id AS job_id, (e.details ->> 'run')::uuid AS run_id,
       CASE WHEN e.event_type = 'queued' THEN 'job_created' WHEN e.event_type = 'processing' THEN 'job_claimed'
            WHEN e.event_type IN ('completed', 'cancelled') THEN 'job_completed'
            WHEN e.details ->> 'reason' IN ('worker lost', 'claim lost') THEN 'recovery_detected'
            WHEN e.event_type IN ('failed', 'retry_scheduled') THEN 'job_failed' ELSE e.event_type END AS event_type,
       CASE WHEN e.event_type = 'queued' THEN jsonb_build_object('type', j.job_type, 'reason', j.payload ->> 'trigger')
            WHEN e.details ? 'run' THEN e.details - 'run'
            ELSE jsonb_strip_nulls(jsonb_build_object(
                'status', CASE WHEN e.status_after = 'processing' THEN 'running' WHEN e.status_after = 'completed' THEN 'succeeded'
                               WHEN e.status_after = 'failed' AND e.details ->> 'reason' <> 'bad_payload' THEN 'dead_letter'
                               ELSE e.status_after END,
                'attempt', e.attempt, 'claim', e.details -> 'claim',
                'error', CASE WHEN e.event_type IN ('failed', 'retry_scheduled', 'cancelled')
                              THEN nullif(concat_ws(': ', e.details ->> 'reason', e.details ->> 'message'), '') END)) END AS data,
       1 AS schema_version, e.created_at
  FROM observation_generation_job_events e
  JOIN observation_generation_jobs j ON j.id = e.generation_job_id AND j.team_id = e.team_id
 WHERE j.source_type = 'steward';
COMMENT ON VIEW steward_events IS 'The events of the steward''s jobs in the words of Contextify.';
GRANT SELECT ON steward_jobs, steward_events TO cmserver_tenant;

CREATE FUNCTION refuse_steward_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is a view of the outbox, which nobody writes: `cmserver steward run` queues what there is to do, retry_job(id) sends a job back, cancel_job(id) ends one', TG_TABLE_NAME
        USING ERRCODE = 'feature_not_supported';
END $$;
CREATE TRIGGER refuse_steward_write INSTEAD OF INSERT OR UPDATE OR DELETE ON steward_jobs
    FOR EACH ROW EXECUTE FUNCTION refuse_steward_write();
CREATE TRIGGER refuse_steward_write INSTEAD OF INSERT OR UPDATE OR DELETE ON steward_events
    FOR EACH ROW EXECUTE FUNCTION refuse_steward_write();

CREATE OR REPLACE FUNCTION move_gathered(held uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    ANALYZE moving;
    DELETE FROM consolidation_suggestions
     WHERE project_id = held AND team_id = team
       AND (left_id IN (SELECT id FROM moving)) <> (right_id IN (SELECT id FROM moving));
    UPDATE agent_events SET project_id = target WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE turns SET project_id = target
     WHERE server_session_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    -- A job of the steward goes with the observations that it is about, and stays in its lane.
    INSERT INTO moving
    SELECT j.id FROM observation_generation_jobs j
     WHERE j.project_id = held AND j.team_id = team AND j.source_type = 'steward' AND j.payload -> 'sources' <> '[]'
       AND NOT EXISTS (SELECT FROM jsonb_array_elements_text(j.payload -> 'sources') s WHERE s::uuid NOT IN (SELECT id FROM moving))
    ON CONFLICT DO NOTHING;
    UPDATE observation_generation_jobs SET project_id = target
     WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_generation_job_events SET project_id = target
     WHERE generation_job_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE generation_lanes SET project_id = target WHERE lane IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE generation_runs SET project_id = target
     WHERE project_id = held AND lane IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observations SET project_id = target WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_versions SET project_id = target
     WHERE observation_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_embeddings SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (observation_id IN (SELECT id FROM moving)
            OR turn_id IN (SELECT id FROM turns WHERE team_id = team AND server_session_id IN (SELECT id FROM moving)));
    UPDATE observation_sources SET project_id = target
     WHERE observation_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE consolidation_suggestions SET project_id = target
     WHERE left_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_relationships SET from_project_id = target
     WHERE from_id IN (SELECT id FROM moving) AND from_project_id = held AND team_id = team;
    UPDATE observation_relationships SET to_project_id = target
     WHERE to_id IN (SELECT id FROM moving) AND to_project_id = held AND team_id = team;
    UPDATE context_injections SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (server_session_id IN (SELECT id FROM moving) OR id IN (SELECT id FROM moving));
    UPDATE observation_derivations SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (id IN (SELECT id FROM moving) OR derived_observation_id IN (SELECT id FROM moving));
    UPDATE steward_runs r SET project_id = target
      FROM observation_generation_jobs j
     WHERE j.id = r.job_id AND j.team_id = r.team_id AND j.project_id = target AND r.project_id = held AND r.team_id = team;
END $$;
