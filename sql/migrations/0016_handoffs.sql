-- A page of what a branch is at can be handed to a member of the team, whose next session starts with it
--
-- Only who hands over what to whom is kept: the page is made when it is told, so nothing that was erased or made private meanwhile is on
-- it. A row goes when it is told, when either of the two leaves the team, or with the memory of the project.
--
-- How long: at once; no row is read.

CREATE TABLE handoffs (
    team_id    uuid NOT NULL,
    project_id uuid NOT NULL,
    to_user    text NOT NULL,
    from_user  text NOT NULL,
    branch     text NOT NULL CHECK (length(branch) <= 200),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, to_user, project_id, from_user),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (team_id, to_user) REFERENCES team_members (team_id, user_id) ON UPDATE CASCADE ON DELETE CASCADE,
    FOREIGN KEY (team_id, from_user) REFERENCES team_members (team_id, user_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE INDEX handoffs_project ON handoffs (project_id, team_id);
CREATE INDEX handoffs_from_user ON handoffs (team_id, from_user);
COMMENT ON TABLE handoffs IS 'To whom of the team the state of a branch was handed over, until their next session in the project starts. No text.';
COMMENT ON COLUMN handoffs.branch IS 'The git branch; empty for the whole project.';
ALTER TABLE handoffs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON handoffs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON handoffs TO cmserver_tenant;
