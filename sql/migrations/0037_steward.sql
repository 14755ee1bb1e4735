-- The steward: jobs, runs, their timeline, what was derived, policies, and who allowed what.
--
-- Why: merging what is suggested, marking what became stale and deriving what several sessions found are small decisions that wait for
-- people who have other work. The steward prepares them, and makes those that a team allows (steward_modes; nothing without a row).
-- A job and its task in procrastinate's queue are committed together, by a trigger; the row alone says who holds it, under which
-- number, and until when. procrastinate recovers nothing of a process that was killed, so requeue_steward_jobs() does, by the lease
-- in the row. Each step of a job's life is checked and written down by triggers, whoever makes it, be it in psql.
-- `observations.stale` says why a claim about a file does not hold any more.
-- The previous release keeps working: it knows none of it.
-- How long: instant; the tables are new and the column is empty. The check is taken on without reading the rows, and then proven beside
-- other work: some seconds per million calls.

ALTER TABLE observations ADD COLUMN stale jsonb CHECK (jsonb_typeof(stale) = 'object');
COMMENT ON COLUMN observations.stale IS 'Why what it says of a file does not hold any more: reason, path, event and time. NULL while nothing is known against it.';
CREATE OR REPLACE VIEW observations_in_team AS
    SELECT * FROM observations
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
       AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > now());

ALTER TABLE generation_runs DROP CONSTRAINT generation_runs_kind_check;
ALTER TABLE generation_runs ADD CONSTRAINT generation_runs_kind_check
    CHECK (kind IN ('observations', 'summary', 'merge', 'guard', 'derive')) NOT VALID;
ALTER TABLE generation_runs VALIDATE CONSTRAINT generation_runs_kind_check;
COMMENT ON COLUMN generation_runs.lane IS 'Of its jobs; a call of the kinds merge, guard and derive has none, and its own id here.';
-- What the steward spends, as a line of its own.
CREATE INDEX generation_runs_steward ON generation_runs (team_id, created_at) WHERE kind IN ('guard', 'derive');

CREATE TABLE steward_modes (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id uuid,
    mode       text CHECK (mode IN ('off', 'dry_run', 'write')),
    is_paused  boolean NOT NULL DEFAULT false,
    executors  text[] NOT NULL DEFAULT '{auto_merge,derive,recheck,policy_tune}'
               CHECK (executors <@ '{auto_merge,derive,recheck,policy_tune}'),
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (team_id, project_id),
    CHECK ((project_id IS NULL) = (mode IS NOT NULL)),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
COMMENT ON TABLE steward_modes IS 'What the steward of a team may do, and which executors it may run; a row of a project narrows the executors. No row is off.';

CREATE SEQUENCE steward_claims;

CREATE TABLE steward_jobs (
    id                     uuid PRIMARY KEY,
    team_id                uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id             uuid,
    job_type               text NOT NULL CHECK (job_type <> ''),
    source_observation_ids uuid[] NOT NULL DEFAULT '{}',
    trigger_reason         text NOT NULL,
    payload                jsonb NOT NULL DEFAULT '{}',
    status                 text NOT NULL DEFAULT 'queued'
                           CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'dead_letter', 'cancelled')),
    priority               integer NOT NULL DEFAULT 0,
    attempt_count          integer NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    max_attempts           integer NOT NULL DEFAULT 3 CHECK (max_attempts >= 1),
    run_after              timestamptz NOT NULL DEFAULT now(),
    claim                  bigint,
    locked_by              text,
    locked_at              timestamptz,
    lease_expires_at       timestamptz,
    cancel_requested_at    timestamptz,
    decision               jsonb,
    last_error             text,
    idempotency_key        text,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    ended_at               timestamptz,
    UNIQUE (id, team_id),
    CHECK ((status = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((status IN ('queued', 'running')) = (ended_at IS NULL)),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX steward_jobs_open ON steward_jobs (team_id, project_id, run_after) WHERE status IN ('queued', 'running');
CREATE INDEX steward_jobs_lease ON steward_jobs (lease_expires_at) WHERE status = 'running';
CREATE INDEX steward_jobs_team ON steward_jobs (team_id, job_type, created_at, id);
CREATE INDEX steward_jobs_project ON steward_jobs (project_id) WHERE project_id IS NOT NULL;
CREATE INDEX steward_jobs_suggestion ON steward_jobs ((payload ->> 'suggestionId')) WHERE job_type = 'auto_merge';
CREATE UNIQUE INDEX steward_jobs_idempotency ON steward_jobs (team_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
COMMENT ON TABLE steward_jobs IS 'What the steward has to do and has done. Each queued row has a task in procrastinate''s queue.';
COMMENT ON COLUMN steward_jobs.claim IS 'The number of the last claim. Who writes for a job names it, so that a worker whose lease is over writes nothing.';
COMMENT ON COLUMN steward_jobs.decision IS 'The last decision: what, why, how sure, and whether it is tried again.';

CREATE TABLE steward_runs (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL,
    project_id        uuid,
    job_id            uuid NOT NULL,
    job_type          text NOT NULL,
    attempt           integer NOT NULL,
    provider          text,
    model             text,
    input_snapshot    jsonb NOT NULL DEFAULT '{}',
    output_snapshot   jsonb,
    input_hash        text,
    prompt_tokens     integer NOT NULL DEFAULT 0 CHECK (prompt_tokens >= 0),
    completion_tokens integer NOT NULL DEFAULT 0 CHECK (completion_tokens >= 0),
    total_tokens      integer NOT NULL GENERATED ALWAYS AS (prompt_tokens + completion_tokens) STORED,
    latency_ms        integer CHECK (latency_ms >= 0),
    status            text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'succeeded', 'failed', 'skipped')),
    error_class       text,
    error_message     text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    completed_at      timestamptz,
    undone_at         timestamptz,
    undone_by         text,
    UNIQUE (id, team_id),
    CHECK ((status = 'running') = (completed_at IS NULL)),
    CHECK ((undone_at IS NULL) = (undone_by IS NULL)),
    FOREIGN KEY (job_id, team_id) REFERENCES steward_jobs (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX steward_runs_job ON steward_runs (job_id, created_at);
CREATE INDEX steward_runs_team ON steward_runs (team_id, created_at, id);
CREATE INDEX steward_runs_project ON steward_runs (project_id) WHERE project_id IS NOT NULL;
COMMENT ON TABLE steward_runs IS 'Each attempt at a job: what it looked at and decided, by ids; tokens, duration, and how it ended.';

CREATE TABLE steward_events (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id        uuid NOT NULL,
    job_id         uuid NOT NULL,
    run_id         uuid,
    event_type     text NOT NULL CHECK (event_type IN (
                       'job_created', 'job_claimed', 'model_invoked', 'decision_made', 'write_applied', 'write_skipped',
                       'job_completed', 'job_failed', 'recovery_detected', 'run_undone')),
    data           jsonb NOT NULL DEFAULT '{}',
    schema_version integer NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (job_id, team_id) REFERENCES steward_jobs (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (run_id, team_id) REFERENCES steward_runs (id, team_id) ON DELETE CASCADE
);
CREATE INDEX steward_events_job ON steward_events (job_id, id);
CREATE INDEX steward_events_run ON steward_events (run_id, id) WHERE run_id IS NOT NULL;
COMMENT ON TABLE steward_events IS 'The timeline of the steward, only appended, each in the transaction of what it tells.';

CREATE TABLE observation_derivations (
    id                     uuid PRIMARY KEY,
    team_id                uuid NOT NULL,
    project_id             uuid NOT NULL,
    run_id                 uuid,
    fingerprint            text NOT NULL,
    source_observation_ids uuid[] NOT NULL,
    derived_observation_id uuid,
    derivation_type        text NOT NULL,
    confidence             real NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    novelty                real NOT NULL CHECK (novelty BETWEEN 0 AND 1),
    status                 text NOT NULL CHECK (status IN ('candidate', 'accepted', 'skipped', 'failed', 'undone')),
    model                  text,
    payload                jsonb NOT NULL DEFAULT '{}',
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    UNIQUE (project_id, fingerprint),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (run_id, team_id) REFERENCES steward_runs (id, team_id) ON DELETE SET NULL (run_id),
    FOREIGN KEY (derived_observation_id, project_id, team_id)
        REFERENCES observations (id, project_id, team_id) ON UPDATE CASCADE ON DELETE SET NULL (derived_observation_id)
);
CREATE INDEX observation_derivations_derived ON observation_derivations (derived_observation_id)
    WHERE derived_observation_id IS NOT NULL;
CREATE INDEX observation_derivations_run ON observation_derivations (run_id) WHERE run_id IS NOT NULL;
COMMENT ON TABLE observation_derivations IS 'What the steward drew from several observations, or would have, from which, how sure and how new.';

CREATE TABLE steward_policy_history (
    id             uuid PRIMARY KEY,
    team_id        uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    run_id         uuid,
    policy_key     text NOT NULL,
    prior_value    double precision NOT NULL,
    new_value      double precision NOT NULL,
    reason         text NOT NULL,
    sample_size    integer NOT NULL DEFAULT 0,
    evidence       jsonb NOT NULL DEFAULT '{}',
    changed_by     text NOT NULL,
    rollback_of_id uuid,
    created_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (id, team_id),
    UNIQUE (rollback_of_id),
    FOREIGN KEY (run_id, team_id) REFERENCES steward_runs (id, team_id) ON DELETE SET NULL (run_id),
    FOREIGN KEY (rollback_of_id, team_id) REFERENCES steward_policy_history (id, team_id) ON DELETE CASCADE
);
CREATE INDEX steward_policy_history_key ON steward_policy_history (team_id, policy_key, created_at, id);
CREATE INDEX steward_policy_history_run ON steward_policy_history (run_id) WHERE run_id IS NOT NULL;
COMMENT ON TABLE steward_policy_history IS 'Changes of the steward''s thresholds with their evidence. The newest of a key is what holds.';

-- The law of a job's life. A retry by hand adds three attempts; attempts are never reset.
CREATE FUNCTION steward_job_law() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT ((OLD.status = 'queued' AND NEW.status IN ('running', 'cancelled'))
         OR (OLD.status = 'running' AND NEW.status IN ('succeeded', 'failed', 'dead_letter', 'cancelled'))
         OR (OLD.status = 'running' AND NEW.status = 'queued' AND NEW.attempt_count < NEW.max_attempts)
         OR (OLD.status IN ('failed', 'dead_letter', 'cancelled') AND NEW.status = 'queued')) THEN
        RAISE EXCEPTION 'a job of the steward cannot go from % to % (job %, attempt % of %)',
            OLD.status, NEW.status, NEW.id, NEW.attempt_count, NEW.max_attempts USING ERRCODE = 'check_violation',
            CONSTRAINT = 'steward_job_law';
    END IF;
    IF OLD.status IN ('failed', 'dead_letter', 'cancelled') THEN
        NEW.max_attempts := greatest(NEW.max_attempts, NEW.attempt_count + 3);
        NEW.run_after := now();
        NEW.cancel_requested_at := NULL;
    END IF;
    IF NEW.status <> 'running' THEN
        NEW.locked_by := NULL;
        NEW.locked_at := NULL;
        NEW.lease_expires_at := NULL;
    END IF;
    NEW.ended_at := CASE WHEN NEW.status NOT IN ('queued', 'running') THEN now() END;
    NEW.updated_at := now();
    RETURN NEW;
END $$;
CREATE TRIGGER steward_job_law BEFORE UPDATE OF status ON steward_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION steward_job_law();

-- Its timeline, and its task in procrastinate's queue. Only the owner may queue: the tasks are the owner's.
CREATE FUNCTION steward_job_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO steward_events (team_id, job_id, event_type, data)
        VALUES (NEW.team_id, NEW.id, 'job_created', jsonb_build_object('type', NEW.job_type, 'reason', NEW.trigger_reason));
    ELSE
        INSERT INTO steward_events (team_id, job_id, event_type, data)
        VALUES (NEW.team_id, NEW.id,
                CASE WHEN OLD.status = 'running' AND OLD.lease_expires_at < now() AND NEW.status IN ('queued', 'dead_letter')
                     THEN 'recovery_detected'
                     WHEN NEW.status = 'running' THEN 'job_claimed'
                     WHEN NEW.status IN ('failed', 'dead_letter') THEN 'job_failed'
                     WHEN NEW.status = 'queued' AND OLD.status = 'running' THEN 'job_failed'
                     WHEN NEW.status = 'queued' THEN 'job_created'
                     ELSE 'job_completed' END,
                jsonb_strip_nulls(jsonb_build_object(
                    'status', NEW.status, 'attempt', NEW.attempt_count,
                    'claim', CASE WHEN NEW.status = 'running' THEN NEW.claim END,
                    'error', CASE WHEN OLD.status = 'running' AND NEW.status <> 'succeeded' THEN NEW.last_error END,
                    'runAfter', CASE WHEN NEW.status = 'queued' THEN NEW.run_after END)));
    END IF;
    IF NEW.status = 'queued' THEN
        PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW('steward', 'steward.run', NEW.priority, NULL, NULL,
            jsonb_build_object('job_id', NEW.id), NEW.run_after)::procrastinate_job_to_defer_v1]);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER steward_job_log_insert AFTER INSERT ON steward_jobs FOR EACH ROW EXECUTE FUNCTION steward_job_log();
CREATE TRIGGER steward_job_log_update AFTER UPDATE OF status ON steward_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION steward_job_log();

CREATE FUNCTION requeue_steward_jobs() RETURNS SETOF uuid LANGUAGE plpgsql AS $$
DECLARE
    lost uuid[];
BEGIN
    WITH stale AS (
        SELECT id FROM steward_jobs WHERE status = 'running' AND lease_expires_at < now() ORDER BY id FOR UPDATE SKIP LOCKED
    ), recovered AS (
        UPDATE steward_jobs j
           SET status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                             WHEN j.attempt_count < j.max_attempts THEN 'queued' ELSE 'dead_letter' END,
               last_error = 'worker_lost: ' || coalesce(j.locked_by, '?'), run_after = now()
          FROM stale WHERE j.id = stale.id RETURNING j.id)
    SELECT array_agg(id) INTO lost FROM recovered;
    IF lost IS NOT NULL THEN
        UPDATE steward_runs
           SET status = 'failed', error_class = 'worker_lost', error_message = 'The lease of its worker was over.',
               completed_at = now()
         WHERE status = 'running' AND job_id = ANY(lost);
    END IF;
    RETURN QUERY SELECT unnest(lost);
END $$;
COMMENT ON FUNCTION requeue_steward_jobs() IS 'Gives back the jobs of the steward whose lease is over; returns them. Every worker does this every few seconds.';

CREATE FUNCTION wake_steward_jobs() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    woken_count bigint;
BEGIN
    -- The tasks of workers that are gone: they finish nothing, and nobody else finishes them.
    DELETE FROM procrastinate_jobs p
     WHERE p.queue_name = 'steward' AND p.status = 'doing'
       AND NOT EXISTS (SELECT FROM procrastinate_workers w
                        WHERE w.id = p.worker_id AND w.last_heartbeat > now() - interval '1 minute');
    PERFORM procrastinate_defer_jobs_v1(array_agg(ROW('steward', 'steward.run', j.priority, NULL, NULL,
                jsonb_build_object('job_id', j.id), j.run_after)::procrastinate_job_to_defer_v1))
       FROM steward_jobs j JOIN steward_modes m ON m.team_id = j.team_id AND m.project_id IS NULL
      WHERE j.status = 'queued' AND m.mode <> 'off' AND NOT m.is_paused
        AND NOT EXISTS (SELECT FROM procrastinate_jobs p
                         WHERE p.queue_name = 'steward' AND p.status IN ('todo', 'doing') AND p.args ->> 'job_id' = j.id::text)
     HAVING count(*) > 0;
    GET DIAGNOSTICS woken_count = ROW_COUNT;
    RETURN woken_count;
END $$;
COMMENT ON FUNCTION wake_steward_jobs() IS 'Makes a task for each queued job of the steward that has none: it was paused, or psql took the task away. Done every minute.';

ALTER TABLE steward_modes ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_modes USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE steward_jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_jobs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE steward_runs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_runs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE steward_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_events USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE observation_derivations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_derivations USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE steward_policy_history ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_policy_history USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

GRANT SELECT, INSERT, UPDATE, DELETE ON steward_modes, observation_derivations TO cmserver_tenant;
GRANT SELECT, UPDATE, DELETE ON steward_jobs TO cmserver_tenant;
GRANT SELECT, INSERT, UPDATE ON steward_runs TO cmserver_tenant;
GRANT SELECT, INSERT ON steward_events, steward_policy_history TO cmserver_tenant;
