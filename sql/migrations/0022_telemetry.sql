-- What clients of Contextify look for and store is counted, for their funnel: how often something was found, how often kept.
--
-- Why: GET /api/v1/analytics/funnel answers whether a memory is used: searches that were tried and that found something, things that
-- were offered and what became of each. One row for each of the four, with the session and the request that it belongs to. The words of a
-- query stand there redacted, and only where it names a project, with whose memory they are erased.
-- The previous release keeps working: it does not know the table.
-- How long: no time, it is empty.

CREATE TABLE memory_telemetry (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id        uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id     uuid,
    observation_id uuid,
    event_type     text NOT NULL CHECK (event_type IN ('recall_attempt', 'recall_hit', 'store_opportunity', 'store_action')),
    session_id     text,
    request_id     text,
    agent          text,
    action         text CHECK (action IN ('created', 'created_with_suggestions', 'updated')),
    hit_count      integer CHECK (hit_count >= 0),
    latency_ms     integer CHECK (latency_ms >= 0),
    query_text     text CHECK (query_text IS NULL OR project_id IS NOT NULL),
    created_at     timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX memory_telemetry_team ON memory_telemetry (team_id, created_at);
CREATE INDEX memory_telemetry_project ON memory_telemetry (project_id) WHERE project_id IS NOT NULL;
COMMENT ON TABLE memory_telemetry IS 'What clients of Contextify looked for and stored, and what came of it; for its funnel.';
COMMENT ON COLUMN memory_telemetry.observation_id IS 'The observation that was stored or merged into; it may be gone.';
COMMENT ON COLUMN memory_telemetry.session_id IS 'The session in the words of the client (X-Session-ID); no row is looked up by it.';
COMMENT ON COLUMN memory_telemetry.query_text IS 'The words that were looked for, redacted.';

ALTER TABLE memory_telemetry ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON memory_telemetry USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON memory_telemetry TO cmserver_tenant;
