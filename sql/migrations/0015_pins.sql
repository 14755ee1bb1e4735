-- A team writes down what its memory must answer: a question, words that must come in its first lines, and words that must not
--
-- A pin is checked by a search for its question, by words. What it said the last time is kept, so that an upgrade knows what it lost.
--
-- How long: milliseconds; it makes an empty table.

CREATE TABLE pins (
    id         uuid PRIMARY KEY,
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id uuid NOT NULL,
    number     bigint NOT NULL CHECK (number >= 1),
    question   text NOT NULL CHECK (question <> ''),
    must       text[] NOT NULL,
    must_not   text[] NOT NULL,
    lines      integer NOT NULL CHECK (lines BETWEEN 1 AND 20),
    on_break   text NOT NULL CHECK (on_break IN ('report', 'refuse')),
    from_file  boolean NOT NULL,
    holds      boolean NOT NULL,
    checked_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (team_id, number),
    CHECK (cardinality(must) + cardinality(must_not) > 0),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX pins_project ON pins (project_id, team_id);
COMMENT ON TABLE pins IS 'What a team''s memory must answer: words that must, or must not, come in the first lines of a search.';
COMMENT ON COLUMN pins.number IS 'Counted for the team.';
COMMENT ON COLUMN pins.lines IS 'So many of the first hits are looked at.';
COMMENT ON COLUMN pins.on_break IS 'Whether an upgrade that would break it is refused, or reports it.';
COMMENT ON COLUMN pins.from_file IS 'It stands in the repository''s .cmserver/pins.toml, and goes when it does not any more.';
COMMENT ON COLUMN pins.holds IS 'What its last check said.';
ALTER TABLE pins ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON pins USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON pins TO cmserver_tenant;
