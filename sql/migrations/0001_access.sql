-- Teams, projects, keys and the audit log; and the ground rules that every later migration keeps.
--
-- Why: several teams share one server and never see each other. Every table with a team_id has row-level security ENABLED
-- (not FORCED: the owner, which claims work and runs the operator's commands, must see every team). Requests run as the role
-- cmserver_tenant, which owns nothing, and name their team per transaction in the setting cmserver.team_id. When it is unset, or
-- the empty string that an ended transaction leaves behind, no row is visible.
-- The role itself is made before the migrations run (roles belong to the cluster, not to the database).
-- How long: instant; the tables are new.

CREATE TABLE installation (
    only_one   boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    id         uuid NOT NULL,
    secret     bytea NOT NULL CHECK (length(secret) >= 32),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE installation IS 'One row: who this server is, and the secret of its keyed hashes (an idempotency key must not let anybody guess what it was made from).';

CREATE TABLE teams (
    id          uuid PRIMARY KEY,
    name        text NOT NULL CHECK (name <> ''),
    metadata    jsonb NOT NULL DEFAULT '{}',
    archived_at timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX teams_name ON teams (name) WHERE archived_at IS NULL;

CREATE TABLE projects (
    id           uuid PRIMARY KEY,
    team_id      uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    canonical_id text NOT NULL CHECK (canonical_id <> '' AND length(canonical_id) <= 500),
    name         text NOT NULL CHECK (name <> ''),
    metadata     jsonb NOT NULL DEFAULT '{}',
    archived_at  timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE (id, team_id),
    UNIQUE (team_id, canonical_id)
);

CREATE TABLE project_aliases (
    team_id    uuid NOT NULL,
    alias      text NOT NULL CHECK (alias <> '' AND length(alias) <= 500),
    project_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, alias),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX project_aliases_project ON project_aliases (project_id, team_id);

CREATE TABLE team_members (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    user_id    text NOT NULL CHECK (user_id <> ''),
    role       text NOT NULL CHECK (role IN ('owner', 'member')),
    metadata   jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, user_id)
);

CREATE TABLE api_keys (
    id         uuid PRIMARY KEY,
    key_hash   text NOT NULL UNIQUE,
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id uuid,
    name       text NOT NULL DEFAULT '',
    actor_id   text NOT NULL CHECK (actor_id <> ''),
    scopes     jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(scopes) = 'array'),
    revoked_at timestamptz,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX api_keys_team ON api_keys (team_id, created_at);
CREATE INDEX api_keys_project ON api_keys (project_id, team_id) WHERE project_id IS NOT NULL;
COMMENT ON COLUMN api_keys.key_hash IS 'SHA-256 of the secret part of the key, hex. The key itself is shown once and stored nowhere.';

-- No foreign keys: the log outlives what it names (ids and names, never texts), and deleting a team must not fail on it.
CREATE TABLE audit_log (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id       uuid NOT NULL,
    project_id    uuid,
    actor_id      text,
    api_key_id    uuid,
    action        text NOT NULL,
    resource_type text NOT NULL,
    resource_id   text,
    request_id    text,
    details       jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX audit_log_scope ON audit_log (team_id, project_id, created_at);

COMMENT ON TABLE teams IS 'People who share what their agents remember; teams never see each other.';
COMMENT ON TABLE projects IS 'A code base of a team, by its canonical id (github.com/user/repo, a name, or a path).';
COMMENT ON TABLE project_aliases IS 'Older and other names of projects.';
COMMENT ON TABLE team_members IS 'Who belongs to a team, as owner or member.';
COMMENT ON TABLE api_keys IS 'Keys: what they may do, in which team, and in which project when bound to one.';
COMMENT ON TABLE audit_log IS 'Who did what, in ids and names, never in texts. Only appended to.';

ALTER TABLE teams ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON teams USING (id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE projects ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON projects USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE project_aliases ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON project_aliases USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE team_members ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON team_members USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON api_keys USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE audit_log ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON audit_log USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

GRANT SELECT ON teams TO cmserver_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON projects, project_aliases TO cmserver_tenant;
GRANT SELECT, INSERT ON audit_log TO cmserver_tenant;
