-- Receipts: what of the memory a session was shown, why, and what it cost.
--
-- Why: an agent is told an index when its session starts, and a few lines on a prompt or a file. Nobody could say afterwards what that
-- was; a line must not be shown twice in a session; and a resumed session is told only what is new since it was last told something.
-- One row is written for each text that was handed out, with the numbers of what stood in it and of what was left out, never the text.
-- The previous release keeps working: it does not know the table.
-- How long: no time, it is empty.

CREATE TABLE context_injections (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id        uuid NOT NULL,
    server_session_id uuid,
    reason            text NOT NULL CHECK (reason IN ('startup', 'resume', 'clear', 'compact', 'fork', 'prompt', 'file', 'asked')),
    platform_source   text,
    numbers           bigint[] NOT NULL,
    summary_numbers   bigint[] NOT NULL,
    left_out          bigint[] NOT NULL,
    left_out_count    integer NOT NULL CHECK (left_out_count >= 0),
    tokens            integer NOT NULL CHECK (tokens >= 0),
    budget_tokens     integer NOT NULL CHECK (budget_tokens >= 0),
    chars             integer NOT NULL CHECK (chars >= 0),
    details           jsonb NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES server_sessions (id, project_id, team_id) ON DELETE CASCADE
);
-- The second is what the foreign keys to projects and sessions need when those go; both are read newest first.
CREATE INDEX context_injections_session ON context_injections (server_session_id, created_at, id)
    WHERE server_session_id IS NOT NULL AND created_at > '-infinity';
CREATE INDEX context_injections_project ON context_injections (project_id, created_at, id) WHERE created_at > '-infinity';
COMMENT ON TABLE context_injections IS 'Receipts: what of the memory was shown to which session, why, and how many tokens it cost. Never the text itself.';
COMMENT ON COLUMN context_injections.reason IS 'How the session started (startup, resume, clear, compact, fork), a prompt, a file that was opened, or asked: somebody asked for what the session would be told.';
COMMENT ON COLUMN context_injections.numbers IS 'The observations that were shown, in the order of the text.';
COMMENT ON COLUMN context_injections.summary_numbers IS 'Those of them that are summaries.';
COMMENT ON COLUMN context_injections.left_out IS 'The most useful of those that had no room, at most 100.';
COMMENT ON COLUMN context_injections.details IS 'How useful each line was judged and by what, for cmserver context --explain. Numbers and words of ours, never a text of an observation.';

ALTER TABLE context_injections ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON context_injections USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON context_injections TO cmserver_tenant;

-- Some clients name a session only by what the agent calls it, and no project: it is looked for in all of the team's.
-- How long: some seconds for a million sessions.
CREATE INDEX server_sessions_said ON server_sessions (team_id, content_session_id) WHERE content_session_id IS NOT NULL;
