-- Note what is over of what was said and done: by later edits, by checks that pass since, by what git took back.
--
-- Why: a line of a turn said `MAX_ROWS` is 2000 for ever, though a later turn's edit had taken that out, and that `pytest` failed, though it
-- passes since. A worker notes at a turn's end, file by file, what its edits put in and took out, and how its checks ended; where a later
-- turn takes out what an earlier one had put in, or passes the check that had failed, there is an entry. Tokens are numbers of 32 bits that
-- nothing can be read from. All of it goes with its turns, whoever deletes them. Turns of before have none.
-- How long: two new tables, at once.

CREATE TABLE turn_traces (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id uuid NOT NULL,
    turn_id    uuid NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('edit', 'check')),
    name       text NOT NULL,
    put_in     integer[] NOT NULL DEFAULT '{}',
    took_out   integer[] NOT NULL DEFAULT '{}',
    results    jsonb NOT NULL DEFAULT '[]',
    commit     text,
    PRIMARY KEY (turn_id, kind, name),
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX turn_traces_name ON turn_traces (project_id, kind, name);
COMMENT ON TABLE turn_traces IS 'What a turn''s edits put into each file and took out of it, and how its checks ended. Made of its events.';
COMMENT ON COLUMN turn_traces.name IS 'The file of an edit, the program of a check.';
COMMENT ON COLUMN turn_traces.put_in IS 'Telling words and numbers of the new lines, as hashes; 0 stands between two places of the file.';
COMMENT ON COLUMN turn_traces.took_out IS 'The same of the old lines, with a 0 for each of put_in.';
COMMENT ON COLUMN turn_traces.results IS 'How the runs of a check ended, in order.';
COMMENT ON COLUMN turn_traces.commit IS 'The commit that has the edit, empty where its hash is not known; NULL until there is one.';

CREATE TABLE turn_ledger (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    earlier_id uuid NOT NULL,
    earlier_project_id uuid NOT NULL,
    later_id   uuid NOT NULL,
    later_project_id uuid NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('edit', 'check')),
    name       text NOT NULL,
    token      integer NOT NULL,
    instead    integer[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (earlier_id, kind, name, token),
    FOREIGN KEY (earlier_id, earlier_project_id, team_id) REFERENCES turns (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (later_id, later_project_id, team_id) REFERENCES turns (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX turn_ledger_later ON turn_ledger (later_id);
COMMENT ON TABLE turn_ledger IS 'What of an earlier turn is over, by which later one. Made of turn_traces.';
COMMENT ON COLUMN turn_ledger.kind IS 'The evidence: an edit, or git, took out what was put in; or the check passes.';
COMMENT ON COLUMN turn_ledger.name IS 'The file, or the check as its turn names it.';
COMMENT ON COLUMN turn_ledger.token IS 'What was taken out, as a hash; 0 for a check.';
COMMENT ON COLUMN turn_ledger.instead IS 'What the same place of the file got instead.';

ALTER TABLE turn_traces ENABLE ROW LEVEL SECURITY;
ALTER TABLE turn_ledger ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON turn_traces USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
CREATE POLICY team ON turn_ledger USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT ON turn_traces, turn_ledger TO cmserver_tenant;
