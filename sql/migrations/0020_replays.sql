-- A team can see what today's rules, or a model, would remember of what its agents have sent, and take that over
--
-- A replay runs stored events again in tables of its own session, which are gone with it: nothing that is told or searched reads them. What
-- differs from what is remembered is kept here, a line for each row, until the replay is removed.
--
-- How long: milliseconds; it makes two empty tables.

CREATE TABLE replays (
    id            uuid PRIMARY KEY,
    team_id       uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id    uuid,
    number        bigint NOT NULL CHECK (number >= 1),
    since         timestamptz,
    provider      text NOT NULL CHECK (provider <> ''),
    program       text NOT NULL,
    state         text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'stopped', 'done', 'taken_over')),
    reason        text,
    session_count integer NOT NULL CHECK (session_count >= 0),
    event_count   integer NOT NULL CHECK (event_count >= 0),
    purged_count  integer NOT NULL DEFAULT 0 CHECK (purged_count >= 0),
    sessions_done integer NOT NULL DEFAULT 0 CHECK (sessions_done >= 0),
    events_done   integer NOT NULL DEFAULT 0 CHECK (events_done >= 0),
    kept          integer NOT NULL DEFAULT 0 CHECK (kept >= 0),
    by_people     integer NOT NULL DEFAULT 0 CHECK (by_people >= 0),
    done_to       timestamptz,
    done_to_id    uuid,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (team_id, number),
    CONSTRAINT replays_of_team UNIQUE (id, team_id),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX replays_project ON replays (project_id, team_id) WHERE project_id IS NOT NULL;
CREATE INDEX replays_running ON replays (created_at) WHERE state = 'running';
COMMENT ON TABLE replays IS 'Stored events run again by today''s rules or by a model, to see what would be remembered of them.';
COMMENT ON COLUMN replays.project_id IS 'The project whose sessions are replayed; NULL for all of the team.';
COMMENT ON COLUMN replays.number IS 'Counted for the team.';
COMMENT ON COLUMN replays.since IS 'Only sessions that began then or later; NULL for all.';
COMMENT ON COLUMN replays.provider IS 'Who words the events: `offline` for the rules, else a provider of the server.';
COMMENT ON COLUMN replays.program IS 'The version whose rules it runs; another one does not go on with it.';
COMMENT ON COLUMN replays.state IS 'running also while no worker has come by yet; taken_over: its lines were written into the memory.';
COMMENT ON COLUMN replays.reason IS 'Why it stopped by itself.';
COMMENT ON COLUMN replays.purged_count IS 'Sessions that were left out, since retention has taken what was said in them.';
COMMENT ON COLUMN replays.kept IS 'Rows that would be remembered just as they are.';
COMMENT ON COLUMN replays.by_people IS 'Rows that people have changed, merged or deleted since, which are not compared.';
COMMENT ON COLUMN replays.done_to IS 'The start of the last session that is done, and beside it its id: a replay goes on behind it.';
ALTER TABLE replays ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON replays USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON replays TO cmserver_tenant;

-- A line goes with its session, with the turn it was drawn of, and with the row that it would change.
CREATE TABLE replay_lines (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL,
    replay_id         uuid NOT NULL,
    project_id        uuid NOT NULL,
    server_session_id uuid NOT NULL,
    turn_id           uuid,
    observation_id    uuid,
    place             integer NOT NULL,
    difference        text NOT NULL CHECK (difference IN ('lost', 'new', 'reworded')),
    what              text NOT NULL CHECK (what IN ('observation', 'summary', 'turn')),
    version           integer,
    before            jsonb,
    after             jsonb,
    new_row           jsonb,
    undo              jsonb,
    CHECK ((before IS NULL) = (difference = 'new')),
    CHECK ((after IS NULL) = (difference = 'lost')),
    FOREIGN KEY (replay_id, team_id) REFERENCES replays (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES server_sessions (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE
);
CREATE UNIQUE INDEX replay_lines_place ON replay_lines (replay_id, place);
CREATE INDEX replay_lines_session ON replay_lines (server_session_id);
CREATE INDEX replay_lines_turn ON replay_lines (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX replay_lines_observation ON replay_lines (observation_id) WHERE observation_id IS NOT NULL;
COMMENT ON TABLE replay_lines IS 'What a replay would remember otherwise: a line for each observation, summary or turn.';
COMMENT ON COLUMN replay_lines.observation_id IS 'The row that would be lost or reworded; of what is new, what was made of it when the replay was taken over.';
COMMENT ON COLUMN replay_lines.version IS 'The version of the row that was compared: another one is not written over.';
COMMENT ON COLUMN replay_lines.before IS 'What is remembered; NULL where nothing is.';
COMMENT ON COLUMN replay_lines.after IS 'What would be remembered; NULL for nothing.';
COMMENT ON COLUMN replay_lines.new_row IS 'All that is needed to store it.';
COMMENT ON COLUMN replay_lines.undo IS 'What was there when the replay was taken over; NULL where nothing was written.';
ALTER TABLE replay_lines ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON replay_lines USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON replay_lines TO cmserver_tenant;
