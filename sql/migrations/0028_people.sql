-- People who sign in to the web interface: their accounts, memberships, invitations and sessions.
--
-- Why: until now only keys called. A person has an account (users), belongs to teams by its id (memberships), and is signed in by a
-- cookie (web_sessions) that stands for the account, or for a key. Whoever opens the link of an invitation gets an account, or joins
-- with theirs. Secrets are stored as hashes: passwords by argon2id, tokens of links and cookies by SHA-256.
-- Only the owner reads these tables: requests of a team, which run as cmserver_tenant, have no grant. The policies on those with a
-- team_id stand there nevertheless.
-- A key that a person made names them, so that it ends with their membership, and the audit log says which person acted.
-- The previous release keeps working: it knows none of this.
-- How long: instant; the new columns are empty. The index on api_keys is partial, and empty.

CREATE TABLE users (
    id               uuid PRIMARY KEY,
    name             text NOT NULL CHECK (name <> '' AND length(name) <= 100),
    password_hash    text,
    is_operator      boolean NOT NULL DEFAULT false,
    reset_hash       text,
    reset_expires_at timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CHECK ((reset_hash IS NULL) = (reset_expires_at IS NULL))
);
CREATE UNIQUE INDEX users_name ON users (lower(name));
CREATE UNIQUE INDEX users_reset ON users (reset_hash) WHERE reset_hash IS NOT NULL;

CREATE TABLE memberships (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    user_id    uuid NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role       text NOT NULL CHECK (role IN ('owner', 'member', 'viewer')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, user_id)
);
CREATE INDEX memberships_user ON memberships (user_id);

CREATE TABLE invitations (
    id             uuid PRIMARY KEY,
    team_id        uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    role           text NOT NULL CHECK (role IN ('owner', 'member', 'viewer')),
    makes_operator boolean NOT NULL DEFAULT false,
    token_hash     text NOT NULL UNIQUE,
    note           text NOT NULL DEFAULT '',
    invited_by     text NOT NULL,
    expires_at     timestamptz NOT NULL,
    used_at        timestamptz,
    used_by        uuid REFERENCES users (id) ON DELETE SET NULL,
    created_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX invitations_team ON invitations (team_id, created_at);
CREATE INDEX invitations_used_by ON invitations (used_by) WHERE used_by IS NOT NULL;

CREATE TABLE web_sessions (
    id              uuid PRIMARY KEY,
    token_hash      text NOT NULL UNIQUE,
    user_id         uuid REFERENCES users (id) ON DELETE CASCADE,
    api_key_id      uuid REFERENCES api_keys (id) ON DELETE CASCADE,
    current_team_id uuid REFERENCES teams (id) ON DELETE SET NULL,
    address         text NOT NULL DEFAULT '',
    browser         text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    last_seen_at    timestamptz NOT NULL DEFAULT now(),
    CHECK (num_nonnulls(user_id, api_key_id) = 1)
);
CREATE INDEX web_sessions_user ON web_sessions (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX web_sessions_key ON web_sessions (api_key_id) WHERE api_key_id IS NOT NULL;
CREATE INDEX web_sessions_team ON web_sessions (current_team_id) WHERE current_team_id IS NOT NULL;

ALTER TABLE api_keys ADD COLUMN user_id uuid REFERENCES users (id) ON DELETE SET NULL;
CREATE INDEX api_keys_user ON api_keys (user_id) WHERE user_id IS NOT NULL;
-- No foreign key, as for the rest of the log.
ALTER TABLE audit_log ADD COLUMN user_id uuid;

COMMENT ON TABLE users IS 'Accounts of people. Names are unique without regard to case.';
COMMENT ON COLUMN users.is_operator IS 'Whether the person may run the server as a whole; no role in a team.';
COMMENT ON COLUMN users.reset_hash IS 'SHA-256 of the token of a link that signs the person in once, to set a new password.';
COMMENT ON TABLE memberships IS 'Which people belong to which team, and as what.';
COMMENT ON TABLE invitations IS 'Links that make somebody a member of a team, once.';
COMMENT ON TABLE web_sessions IS 'Who is signed in to the web interface: a person, or whoever sent a key. They end after 14 days without a request.';
COMMENT ON COLUMN api_keys.user_id IS 'The person who made the key for themselves; it ends with their membership.';
COMMENT ON COLUMN audit_log.user_id IS 'The person who acted, by their account or a key of theirs.';

ALTER TABLE memberships ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON memberships USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE invitations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON invitations USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
