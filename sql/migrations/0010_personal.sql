-- What a person tells agents about themselves is theirs alone: a table of its own, which nobody else of the team reads
--
-- It is no observation of the team with a filter: no query, count, export or worker of the team's comes by it. Row-level security lets
-- a transaction see the rows of one team and one person, who is set in the statement that sets the team.
-- A person is who stands on the key (api_keys.user_id). Until now whoever rotated somebody's key got one of that person: keys that
-- came of a rotation by anybody else, and what was rotated from those, are nobody's from now on, also where the audit log no longer
-- says who rotated them.
--
-- How long: milliseconds; the keys and the audit log's rotations are read once.

CREATE TABLE personal_counters (
    team_id     uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    user_id     uuid NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    last_number bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (team_id, user_id)
);
CREATE INDEX personal_counters_user ON personal_counters (user_id);
COMMENT ON TABLE personal_counters IS 'The last number given out to a person in a team. Its row is locked by whoever writes for them.';
ALTER TABLE personal_counters ENABLE ROW LEVEL SECURITY;
CREATE POLICY person ON personal_counters
    USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
           AND user_id = nullif(current_setting('cmserver.user_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON personal_counters TO cmserver_tenant;

CREATE TABLE personal_observations (
    id                 uuid PRIMARY KEY,
    team_id            uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    user_id            uuid NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    number             bigint NOT NULL CHECK (number >= 1),
    type               text NOT NULL CHECK (type IN ('note', 'rule')),
    content            text NOT NULL CHECK (content <> '' AND length(content) <= 20000),
    search_language    text NOT NULL DEFAULT 'english',
    content_search     tsvector NOT NULL GENERATED ALWAYS AS (search_words(search_language, content, false)) STORED,
    state              text NOT NULL DEFAULT 'holds' CHECK (state IN ('holds', 'dropped', 'moved')),
    before             jsonb,
    project_id         uuid,
    turn_id            uuid,
    observation_number bigint,
    actor_id           text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    UNIQUE (team_id, user_id, number),
    CHECK ((project_id IS NULL) = (turn_id IS NULL)),
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX personal_observations_user ON personal_observations (user_id);
CREATE INDEX personal_observations_turn ON personal_observations (turn_id, project_id, team_id) WHERE turn_id IS NOT NULL;
COMMENT ON TABLE personal_observations IS 'What a person wants remembered for themselves, in all projects of the team. Nobody else of the team reads it.';
COMMENT ON COLUMN personal_observations.number IS 'Counted for the person in the team, and written m12.';
COMMENT ON COLUMN personal_observations.state IS 'dropped: the person forgot it; moved: it is the team''s by now. Both can be undone.';
COMMENT ON COLUMN personal_observations.before IS 'What the last change changed, as it was; NULL where nothing can be undone.';
COMMENT ON COLUMN personal_observations.turn_id IS 'The turn whose words these are: they go with it. NULL for what was told or edited by hand.';
COMMENT ON COLUMN personal_observations.project_id IS 'That of the turn.';
COMMENT ON COLUMN personal_observations.observation_number IS 'The team''s observation that it was moved to.';
COMMENT ON COLUMN personal_observations.actor_id IS 'The name on the key, or of the account, by which it came.';
ALTER TABLE personal_observations ENABLE ROW LEVEL SECURITY;
CREATE POLICY person ON personal_observations
    USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
           AND user_id = nullif(current_setting('cmserver.user_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON personal_observations TO cmserver_tenant;

WITH RECURSIVE rotated AS (
    SELECT n.id, n.team_id
      FROM api_keys o
      JOIN api_keys n ON n.id = o.replaced_by AND n.team_id = o.team_id
     WHERE n.user_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM audit_log a
                        WHERE a.team_id = o.team_id AND a.action = 'key.rotated' AND a.resource_id = o.id::text
                          AND (a.api_key_id = o.id OR a.user_id = n.user_id))
     UNION
    SELECT n.id, n.team_id
      FROM rotated r
      JOIN api_keys o ON o.id = r.id AND o.team_id = r.team_id
      JOIN api_keys n ON n.id = o.replaced_by AND n.team_id = o.team_id
)
UPDATE api_keys k SET user_id = NULL, updated_at = now() FROM rotated r WHERE k.id = r.id AND k.user_id IS NOT NULL;
COMMENT ON COLUMN api_keys.user_id IS 'The person who made the key for themselves, or has bound it to themselves: what is theirs alone is read with it. NULL for nobody''s, as one that somebody else rotated. It ends when they leave the team.';
