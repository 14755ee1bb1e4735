-- Sessions of coding agents, the prompts of their users, and the raw events they sent.
--
-- Why: what an agent sends is kept as it came (redacted, and cut where it is very long), so that observations can be drawn from it
-- again. References carry team and project along: a simple foreign key is checked past row-level security, and would let one team
-- attach to another's row.
-- Every table that is referred to this way has its UNIQUE (id, project_id, team_id) as its last index, and no other index that starts
-- with two of these columns: on a table without statistics the planner takes such an index for just as good, keeps the plan, and
-- each check of a foreign key reads the whole project (40 times slower until the first autoanalyze). A test keeps it so.
-- How long: instant; the tables are new.

CREATE TABLE server_sessions (
    id                  uuid PRIMARY KEY,
    project_id          uuid NOT NULL,
    team_id             uuid NOT NULL,
    external_session_id text,
    content_session_id  text,
    agent_id            text,
    agent_type          text,
    platform_source     text,
    generation_status   text NOT NULL DEFAULT 'idle' CHECK (generation_status IN ('idle', 'completed', 'failed')),
    metadata            jsonb NOT NULL DEFAULT '{}',
    started_at          timestamptz NOT NULL DEFAULT now(),
    ended_at            timestamptz,
    last_generated_at   timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX server_sessions_external
    ON server_sessions (project_id, coalesce(platform_source, ''), external_session_id) WHERE external_session_id IS NOT NULL;
CREATE INDEX server_sessions_content ON server_sessions (project_id, content_session_id) WHERE content_session_id IS NOT NULL;
CREATE INDEX server_sessions_project ON server_sessions (project_id, started_at);
ALTER TABLE server_sessions ADD CONSTRAINT server_sessions_of_project UNIQUE (id, project_id, team_id);

CREATE TABLE agent_events (
    id                uuid PRIMARY KEY,
    project_id        uuid NOT NULL,
    team_id           uuid NOT NULL,
    server_session_id uuid,
    source_adapter    text NOT NULL,
    source_event_id   text,
    idempotency_key   text NOT NULL UNIQUE,
    event_type        text NOT NULL,
    platform_source   text,
    origin            text NOT NULL CHECK (origin IN ('hook', 'api', 'mcp', 'import', 'model')),
    generate          boolean NOT NULL,
    size_chars        integer NOT NULL CHECK (size_chars >= 0),
    payload           jsonb NOT NULL,
    metadata          jsonb NOT NULL DEFAULT '{}',
    occurred_at       timestamptz NOT NULL,
    received_at       timestamptz NOT NULL DEFAULT now(),
    created_at        timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (server_session_id, project_id, team_id)
        REFERENCES server_sessions (id, project_id, team_id) ON DELETE SET NULL (server_session_id)
);
CREATE INDEX agent_events_project_session ON agent_events (project_id, server_session_id, occurred_at);
CREATE INDEX agent_events_project ON agent_events (project_id, occurred_at);
ALTER TABLE agent_events ADD CONSTRAINT agent_events_of_project UNIQUE (id, project_id, team_id);
COMMENT ON COLUMN agent_events.generate IS 'Whether the sender asked for observations: such an event has exactly one job.';
COMMENT ON COLUMN agent_events.origin IS 'The door it came through, stamped by the server.';

CREATE TABLE session_prompts (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL,
    project_id        uuid NOT NULL,
    server_session_id uuid NOT NULL,
    agent_event_id    uuid NOT NULL,
    prompt_number     integer NOT NULL CHECK (prompt_number >= 1),
    text              text NOT NULL,
    text_search       tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(), -- written under the session's lock: in true order
    UNIQUE (server_session_id, prompt_number),
    FOREIGN KEY (server_session_id, project_id, team_id)
        REFERENCES server_sessions (id, project_id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (agent_event_id, project_id, team_id)
        REFERENCES agent_events (id, project_id, team_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX session_prompts_event ON session_prompts (agent_event_id);
CREATE INDEX session_prompts_search ON session_prompts USING gin (text_search);
CREATE INDEX session_prompts_project ON session_prompts (project_id, created_at);

COMMENT ON TABLE server_sessions IS 'Conversations of agents with their users, found by the id that the agent gave them.';
COMMENT ON TABLE agent_events IS 'What agents reported, once each, redacted; never changed.';
COMMENT ON TABLE session_prompts IS 'What users asked for, numbered from 1 in each session.';

ALTER TABLE server_sessions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON server_sessions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE agent_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON agent_events USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE session_prompts ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON session_prompts USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

GRANT SELECT, INSERT, UPDATE, DELETE ON server_sessions, session_prompts TO cmserver_tenant;
GRANT SELECT, INSERT, DELETE ON agent_events TO cmserver_tenant;
