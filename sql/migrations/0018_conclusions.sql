-- An observation keeps the sentence that it rests on, the names by which it is found, and whether it is still open.
--
-- Why: what an agent concluded and what a user laid down is worth more than the list of changed files, and worth it word by word. And
-- something that is still to be done must be told apart from what is done, with the observation that did it.
-- The previous release keeps working: it neither reads nor writes the columns. It would read an origin `rules` as any other.
-- How long: a moment for the columns; the constraints look at each observation once, the indexes at each row of an empty set.

ALTER TABLE observations
    ADD COLUMN importance real NOT NULL DEFAULT 0.5 CHECK (importance BETWEEN 0 AND 1),
    ADD COLUMN quote text CHECK (length(quote) <= 400),
    ADD COLUMN quote_event_id uuid,
    ADD COLUMN anchors text[],
    ADD COLUMN state text CHECK (state IN ('open', 'done', 'dropped')),
    ADD COLUMN closed_by bigint,
    ADD COLUMN closed_at timestamptz,
    ADD CONSTRAINT closed_when_not_open CHECK ((closed_at IS NOT NULL) = coalesce(state IN ('done', 'dropped'), false)),
    ADD CONSTRAINT observations_quote_event_fkey FOREIGN KEY (quote_event_id, project_id, team_id)
        REFERENCES agent_events (id, project_id, team_id) ON DELETE SET NULL (quote_event_id),
    DROP CONSTRAINT observations_origin_check,
    ADD CONSTRAINT observations_origin_check CHECK (origin IN ('hook', 'api', 'mcp', 'import', 'model', 'rules'));

-- What is open in a project is shown at the start of a session and compared with each piece of work.
CREATE INDEX observations_open ON observations (team_id, project_id, number) WHERE state = 'open';
CREATE INDEX observations_quote_event ON observations (quote_event_id) WHERE quote_event_id IS NOT NULL;

CREATE OR REPLACE VIEW observations_in_team AS
    SELECT * FROM observations WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;
