-- The outbox, which is itself the queue: jobs, their lifecycle log, lanes, provider calls and pauses.
--
-- Why: the row that says "this event should become observations" is the row that a worker claims. Lanes are the ready list: one row
-- per session (or per job without one), so that a busy, failing or held session never delays another, and a claim costs the same
-- beside a backlog of a hundred thousand. The jobs stay the one truth of what is to be done.
-- What differs from the usual outbox: no index on (status, next_attempt_at), for lanes carry the time; no foreign key from a job to
-- its API key (a key's row is locked by every insert otherwise; the worker reads the key again before it works); a summary job may
-- lose its session (server_session_id is set NULL when a session is deleted).
-- How long: instant; the tables are new.

CREATE SEQUENCE generation_claims;

CREATE TABLE observation_generation_jobs (
    id                  uuid PRIMARY KEY,
    seq                 bigint GENERATED ALWAYS AS IDENTITY,
    project_id          uuid NOT NULL,
    team_id             uuid NOT NULL,
    lane                uuid NOT NULL,
    agent_event_id      uuid,
    source_type         text NOT NULL CHECK (source_type IN ('agent_event', 'session_summary', 'observation_reindex')),
    source_id           uuid NOT NULL,
    source_run          integer NOT NULL DEFAULT 1 CHECK (source_run >= 1),
    server_session_id   uuid,
    job_type            text NOT NULL,
    status              text NOT NULL DEFAULT 'queued'
                        CHECK (status IN ('queued', 'processing', 'completed', 'failed', 'cancelled')),
    idempotency_key     text NOT NULL UNIQUE,
    attempts            integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    max_attempts        integer NOT NULL DEFAULT 3 CHECK (max_attempts >= 1),
    next_attempt_at     timestamptz,
    locked_at           timestamptz,
    locked_by           text,
    worker_id           bigint,
    claim               bigint,
    cancel_requested_at timestamptz,
    completed_at        timestamptz,
    failed_at           timestamptz,
    cancelled_at        timestamptz,
    outcome             text CHECK (outcome IN ('observed', 'skipped')),
    outcome_reason      text,
    generation_run_id   uuid,
    last_error          jsonb,
    payload             jsonb NOT NULL DEFAULT '{}',
    size_chars          integer NOT NULL DEFAULT 0 CHECK (size_chars >= 0),
    api_key_id          uuid,
    actor_id            text,
    source_adapter      text,
    request_id          text,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    UNIQUE (source_id, source_type, job_type, source_run, project_id, team_id),
    CHECK ((source_type = 'agent_event' AND agent_event_id IS NOT NULL AND source_id = agent_event_id)
        OR (source_type = 'session_summary' AND agent_event_id IS NULL
            AND (server_session_id IS NULL OR source_id = server_session_id))
        OR (source_type = 'observation_reindex' AND agent_event_id IS NULL)),
    CONSTRAINT attempts_within_bounds CHECK (attempts <= max_attempts AND (status <> 'queued' OR attempts < max_attempts)),
    CONSTRAINT locked_while_processing
        CHECK ((status = 'processing') = (locked_at IS NOT NULL AND locked_by IS NOT NULL AND worker_id IS NOT NULL AND claim IS NOT NULL)),
    CONSTRAINT one_terminal_timestamp
        CHECK ((completed_at IS NOT NULL) = (status = 'completed')
           AND (failed_at IS NOT NULL) = (status = 'failed')
           AND (cancelled_at IS NOT NULL) = (status = 'cancelled')),
    CONSTRAINT outcome_when_completed CHECK ((outcome IS NOT NULL) = (status = 'completed')),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (agent_event_id, project_id, team_id)
        REFERENCES agent_events (id, project_id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (server_session_id, project_id, team_id)
        REFERENCES server_sessions (id, project_id, team_id) ON DELETE SET NULL (server_session_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX observation_jobs_lane ON observation_generation_jobs (lane, seq) WHERE status = 'queued';
CREATE INDEX observation_jobs_held ON observation_generation_jobs (worker_id) WHERE status = 'processing';
CREATE INDEX observation_jobs_event ON observation_generation_jobs (agent_event_id) WHERE agent_event_id IS NOT NULL;
CREATE INDEX observation_jobs_session
    ON observation_generation_jobs (server_session_id, seq) WHERE server_session_id IS NOT NULL;
CREATE INDEX observation_jobs_status ON observation_generation_jobs (status, team_id, project_id, created_at);
ALTER TABLE observation_generation_jobs ADD CONSTRAINT observation_jobs_of_project UNIQUE (id, project_id, team_id);
COMMENT ON COLUMN observation_generation_jobs.lane IS 'The session of the job, or the job itself when it has none. One batch of a lane is in progress at any time.';
COMMENT ON COLUMN observation_generation_jobs.claim IS 'The fencing token: only the claim that took the job may write its end.';

CREATE TABLE observation_generation_job_events (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id           uuid NOT NULL,
    project_id        uuid NOT NULL,
    generation_job_id uuid NOT NULL,
    event_type        text NOT NULL CHECK (event_type IN
                          ('queued', 'enqueued', 'processing', 'retry_scheduled', 'completed', 'failed', 'cancelled')),
    status_after      text NOT NULL CHECK (status_after IN ('queued', 'processing', 'completed', 'failed', 'cancelled')),
    attempt           integer NOT NULL DEFAULT 0,
    details           jsonb NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (generation_job_id, project_id, team_id)
        REFERENCES observation_generation_jobs (id, project_id, team_id) ON DELETE CASCADE
);
CREATE INDEX observation_job_events_job ON observation_generation_job_events (generation_job_id, id);

-- No foreign keys: a lane is a place in the ready list, written by every ingest, and gone when idle.
CREATE TABLE generation_lanes (
    lane        uuid PRIMARY KEY,
    team_id     uuid NOT NULL,
    project_id  uuid NOT NULL,
    due_at      timestamptz,
    held_until  timestamptz,
    held_reason text,
    held_for    text,
    worker_id   bigint,
    claim       bigint,
    locked_at   timestamptz,
    CHECK ((worker_id IS NULL) = (claim IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX generation_lanes_due ON generation_lanes (due_at) WHERE worker_id IS NULL AND due_at IS NOT NULL;
CREATE INDEX generation_lanes_held ON generation_lanes (worker_id) WHERE worker_id IS NOT NULL;
COMMENT ON COLUMN generation_lanes.held_for IS 'The provider whose pause holds the lane; NULL for a back-off.';
COMMENT ON COLUMN generation_lanes.due_at IS 'When the lane may be claimed; NULL when nothing waits in it. Never before held_until.';

CREATE TABLE generation_runs (
    id                 uuid PRIMARY KEY,
    team_id            uuid NOT NULL,
    project_id         uuid NOT NULL,
    lane               uuid NOT NULL,
    claim              bigint NOT NULL,
    kind               text NOT NULL CHECK (kind IN ('observations', 'summary')),
    provider           text NOT NULL,
    model              text NOT NULL,
    job_ids            uuid[] NOT NULL,
    status             text NOT NULL CHECK (status IN ('answered', 'applied', 'unusable', 'failed')),
    error_class        text,
    error_message      text,
    answer             text,
    input_tokens       integer NOT NULL DEFAULT 0,
    output_tokens      integer NOT NULL DEFAULT 0,
    cache_read_tokens  integer NOT NULL DEFAULT 0,
    cache_write_tokens integer NOT NULL DEFAULT 0,
    cost_usd           numeric(12, 6),
    latency_ms         integer NOT NULL DEFAULT 0,
    created_at         timestamptz NOT NULL DEFAULT now(),
    applied_at         timestamptz,
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX generation_runs_project ON generation_runs (project_id, created_at);
COMMENT ON COLUMN generation_runs.answer IS 'The raw answer until it has been applied: a crash between answer and write does not buy it twice.';

-- No team: a quota or a bad key stops the provider for everybody.
CREATE TABLE provider_pauses (
    provider  text PRIMARY KEY,
    reason    text NOT NULL,
    message   text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    until_at  timestamptz NOT NULL,
    times     integer NOT NULL DEFAULT 1
);

-- No team: who works on the outbox. procrastinate keeps the heartbeats, of these and of the workers of its own queue.
CREATE TABLE generation_workers (
    worker_id     bigint PRIMARY KEY,
    label         text NOT NULL,
    lease_seconds double precision NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now()
);

-- The law of a job's life, for workers and for whoever types UPDATE in psql alike. It also writes the timestamps that belong to a step.
CREATE FUNCTION generation_job_law() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER generation_job_law BEFORE UPDATE OF status ON observation_generation_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION generation_job_law();

-- The lifecycle log, statement-level with transition tables (row-level cost twice as much), and the wake-up of the lanes
-- of jobs that an operator sent back.
CREATE FUNCTION generation_job_log_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_generation_job_events (team_id, project_id, generation_job_id, event_type, status_after, attempt)
    SELECT team_id, project_id, id, status, status, attempts FROM new_rows ORDER BY seq;
    RETURN NULL;
END $$;
CREATE TRIGGER generation_job_log_insert AFTER INSERT ON observation_generation_jobs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION generation_job_log_insert();

CREATE FUNCTION generation_job_log_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_generation_job_events
           (team_id, project_id, generation_job_id, event_type, status_after, attempt, details)
    SELECT n.team_id, n.project_id, n.id,
           CASE WHEN o.status = 'processing' AND n.status = 'queued' THEN 'retry_scheduled' ELSE n.status END,
           n.status, n.attempts,
           CASE WHEN n.status = 'completed' THEN jsonb_strip_nulls(jsonb_build_object('outcome', n.outcome, 'reason', n.outcome_reason))
                WHEN n.status = 'processing' THEN jsonb_build_object('claim', n.claim, 'by', n.locked_by)
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
CREATE TRIGGER generation_job_log_update AFTER UPDATE ON observation_generation_jobs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION generation_job_log_update();

-- What an operator may do from psql. Each gives the same result and trace as the API.
CREATE FUNCTION retry_job(job uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    now_is text;
BEGIN
    SELECT status INTO now_is FROM observation_generation_jobs WHERE id = job FOR UPDATE;
    IF now_is IN ('failed', 'cancelled') THEN
        UPDATE observation_generation_jobs SET status = 'queued' WHERE id = job;
        RETURN 'queued';
    END IF;
    RETURN coalesce('nothing to do: the job is ' || now_is, 'no such job');
END $$;
COMMENT ON FUNCTION retry_job(uuid) IS 'Sends a failed or cancelled job back to the queue, with three more attempts.';

CREATE FUNCTION cancel_job(job uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    now_is text;
    in_lane uuid;
BEGIN
    SELECT status, lane INTO now_is, in_lane FROM observation_generation_jobs WHERE id = job FOR UPDATE;
    IF now_is = 'queued' THEN
        UPDATE observation_generation_jobs SET status = 'cancelled' WHERE id = job;
        PERFORM pg_notify('cmserver_done', in_lane::text);
        RETURN 'cancelled';
    ELSIF now_is = 'processing' THEN
        UPDATE observation_generation_jobs SET cancel_requested_at = coalesce(cancel_requested_at, now()) WHERE id = job;
        PERFORM pg_notify('cmserver_cancel', job::text);
        RETURN 'cancelling';
    END IF;
    RETURN coalesce('nothing to do: the job is ' || now_is, 'no such job');
END $$;
COMMENT ON FUNCTION cancel_job(uuid) IS 'Ends a queued job at once; a running one is marked, and writes nothing.';

CREATE FUNCTION retry_failed(team uuid, since timestamptz) RETURNS bigint LANGUAGE sql AS $$
    WITH picked AS (SELECT id FROM observation_generation_jobs
                     WHERE team_id = team AND status = 'failed' AND failed_at >= since ORDER BY id FOR UPDATE),
         sent AS (UPDATE observation_generation_jobs j SET status = 'queued' FROM picked WHERE j.id = picked.id RETURNING 1)
    SELECT count(*) FROM sent
$$;
COMMENT ON FUNCTION retry_failed(uuid, timestamptz) IS 'Sends back every job of a team that failed since then; returns how many.';

-- What every worker does every two seconds. A worker is alive while its heartbeat is younger than its own lease.
CREATE FUNCTION live_workers() RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    SELECT g.worker_id FROM generation_workers g JOIN procrastinate_workers w ON w.id = g.worker_id
     WHERE w.last_heartbeat > now() - make_interval(secs => g.lease_seconds)
$$;
COMMENT ON FUNCTION live_workers() IS 'The workers on the outbox whose lease holds.';

CREATE FUNCTION requeue_stale(hard_limit_seconds double precision DEFAULT 300) RETURNS SETOF uuid LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    WITH stale AS (
        SELECT j.id FROM observation_generation_jobs j
         WHERE j.status = 'processing'
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
                            WHERE j.worker_id = l.worker_id AND j.lane = l.lane AND j.status = 'processing')
         ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED)
    UPDATE generation_lanes l
       SET worker_id = NULL, claim = NULL, due_at = greatest(l.held_until, now())
      FROM free WHERE l.lane = free.lane;

    DELETE FROM generation_workers g WHERE NOT EXISTS (SELECT FROM procrastinate_workers w WHERE w.id = g.worker_id);
END $$;
COMMENT ON FUNCTION requeue_stale(double precision) IS 'Gives back what dead workers hold; returns the jobs. Every worker does this every two seconds.';

CREATE FUNCTION wake_sleeping_lanes() RETURNS bigint LANGUAGE sql AS $$
    WITH sleeping AS (
        SELECT j.lane, min(j.team_id::text)::uuid AS team_id, min(j.project_id::text)::uuid AS project_id
          FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
         WHERE j.status = 'queued' AND (l.lane IS NULL OR (l.worker_id IS NULL AND l.due_at IS NULL))
         GROUP BY j.lane ORDER BY j.lane
    ), woken AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
        SELECT lane, team_id, project_id, now() FROM sleeping ORDER BY lane
        ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at)) RETURNING 1
    ) SELECT count(*) FROM woken
$$;
COMMENT ON FUNCTION wake_sleeping_lanes() IS 'Finds queued jobs whose lane is missing or asleep (rows that psql wrote) and makes them due; done every ten minutes.';

-- Views for the operator. They see every team, so only the owner may read them.
CREATE VIEW queue_overview AS
    SELECT t.name AS team, p.canonical_id AS project, j.source_type, j.status, count(*) AS jobs,
           min(j.created_at) AS oldest, max(j.attempts) AS most_attempts
      FROM observation_generation_jobs j JOIN projects p ON p.id = j.project_id JOIN teams t ON t.id = j.team_id
     GROUP BY 1, 2, 3, 4;
CREATE VIEW lane_overview AS
    SELECT l.lane, t.name AS team, p.canonical_id AS project,
           CASE WHEN l.worker_id IS NOT NULL THEN 'working' WHEN l.held_until > now() THEN 'held'
                WHEN l.due_at <= now() THEN 'due' WHEN l.due_at IS NOT NULL THEN 'waiting' ELSE 'idle' END AS state,
           l.due_at, l.held_until, l.held_reason, l.worker_id, l.locked_at,
           (SELECT count(*) FROM observation_generation_jobs j WHERE j.lane = l.lane AND j.status = 'queued') AS queued
      FROM generation_lanes l LEFT JOIN projects p ON p.id = l.project_id LEFT JOIN teams t ON t.id = l.team_id;
CREATE VIEW failed_jobs AS
    SELECT j.id, t.name AS team, p.canonical_id AS project, j.job_type, j.attempts, j.failed_at,
           j.last_error ->> 'reason' AS reason, j.last_error ->> 'message' AS message
      FROM observation_generation_jobs j JOIN projects p ON p.id = j.project_id JOIN teams t ON t.id = j.team_id
     WHERE j.status = 'failed';
CREATE VIEW worker_overview AS
    SELECT g.worker_id, g.label, g.started_at, w.last_heartbeat, now() - w.last_heartbeat AS silent_for,
           count(l.lane) AS lanes, min(l.locked_at) AS oldest_batch
      FROM generation_workers g LEFT JOIN procrastinate_workers w ON w.id = g.worker_id
      LEFT JOIN generation_lanes l ON l.worker_id = g.worker_id
     GROUP BY g.worker_id, g.label, g.started_at, w.last_heartbeat;
CREATE VIEW spend_by_project AS
    SELECT t.name AS team, p.canonical_id AS project, r.provider, r.model, date_trunc('day', r.created_at) AS day,
           count(*) AS calls, count(*) FILTER (WHERE r.status = 'failed') AS failed_calls,
           sum(r.input_tokens) AS input_tokens, sum(r.output_tokens) AS output_tokens, sum(r.cost_usd) AS cost_usd
      FROM generation_runs r JOIN projects p ON p.id = r.project_id JOIN teams t ON t.id = r.team_id
     GROUP BY 1, 2, 3, 4, 5;

COMMENT ON TABLE observation_generation_jobs IS 'The outbox, which is itself the queue: what is to be generated, and what became of it.';
COMMENT ON TABLE observation_generation_job_events IS 'The lifecycle log of jobs, written by a trigger whoever makes the step.';
COMMENT ON TABLE generation_lanes IS 'The ready list: one row a session (or a job without one), claimed by one worker at a time.';
COMMENT ON TABLE generation_runs IS 'Provider calls: what they served, what they cost, and an answer until it is applied.';
COMMENT ON TABLE provider_pauses IS 'Providers that nobody calls for now, and why.';
COMMENT ON TABLE generation_workers IS 'Who works on the outbox; procrastinate keeps their heartbeats.';
COMMENT ON VIEW queue_overview IS 'Jobs by team, project, source and status.';
COMMENT ON VIEW lane_overview IS 'Each lane: working, held, due, waiting or idle, and how many jobs wait in it.';
COMMENT ON VIEW failed_jobs IS 'Jobs that have failed for good, with the reason; retry_job(id) sends one back.';
COMMENT ON VIEW worker_overview IS 'Each worker: how long it has been silent, and what it holds.';
COMMENT ON VIEW spend_by_project IS 'Provider calls, tokens and money by project, model and day.';

ALTER TABLE observation_generation_jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_generation_jobs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE observation_generation_job_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_generation_job_events USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE generation_lanes ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON generation_lanes USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE generation_runs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON generation_runs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

GRANT SELECT, INSERT, UPDATE ON observation_generation_jobs, generation_lanes TO cmserver_tenant;
GRANT SELECT, INSERT ON observation_generation_job_events TO cmserver_tenant;
GRANT SELECT ON generation_runs TO cmserver_tenant;
