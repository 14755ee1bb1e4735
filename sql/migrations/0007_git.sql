-- What git knows: commits and documents of a repository are observations of origin 'git'
--
-- They are rows of observations, so that search, vectors, erasure, export, retention and the join of projects hold for them as they
-- are. A row's metadata say by `git` what it is of: the hash of a commit, or `document:` and a path; its generation_key is `git:` and
-- the same, so that what is sent again finds its row. Nothing of before changes.
--
-- How long: a second, in which observations are read once.

ALTER TABLE observations
    DROP CONSTRAINT observations_origin_check,
    ADD CONSTRAINT observations_origin_check CHECK (origin IN ('hook', 'api', 'mcp', 'import', 'model', 'rules', 'git'));

-- What a session's start is told is looked for past history, however much newer that is.
CREATE INDEX observations_told ON observations (project_id, created_at, id) WHERE (origin <> 'git') AND (superseded_at IS NULL);

-- What a clone's commits did to its files since its sessions are known, for as long as they are in its history.
CREATE TABLE clones (
    project_id uuid NOT NULL,
    team_id    uuid NOT NULL,
    clone_id   uuid NOT NULL,
    head       text NOT NULL,
    changes    jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(changes) = 'object'),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, clone_id),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
COMMENT ON TABLE clones IS 'Clones of repositories in which agents work, and what commits did to their files.';
COMMENT ON COLUMN clones.clone_id IS 'The random id that the hook client gave the clone, or the work tree.';
COMMENT ON COLUMN clones.head IS 'The commit up to which changes are known.';
COMMENT ON COLUMN clones.changes IS 'By path what became of the file: kind, commit, author, when, since when the clone may have it, new path.';
ALTER TABLE clones ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON clones USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON clones TO cmserver_tenant;
