-- An observation has a lifetime, versions that can be read and undone, and may be superseded by another that says the same.
--
-- Why: memory that only grows gets worse: the same fact stands in it five times, the old version beside the new one. What is superseded
-- or has expired is kept for a while, so that it can be undone, but nothing shows it: the view that search reads leaves it out, and
-- each query says the same (a test looks for one that forgot). The nearest-neighbour search never reads the view: a superseded
-- observation therefore has no vector, and the end of a life stands beside the vector.
-- Exact repeats are found by a hash of the text in an index; nothing is stored twice for it.
-- A changed text keeps its old vector until the new one is there: it is still found by its meaning meanwhile.
-- The previous release keeps working on what it writes itself; it would show superseded rows in lists by number.
-- How long: a moment for the columns; some twenty seconds per million observations for the indexes; reading and writing them waits meanwhile.

ALTER TABLE observations
    ADD COLUMN ttl_seconds bigint CHECK (ttl_seconds > 0),
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN version integer NOT NULL DEFAULT 1 CHECK (version >= 1),
    ADD COLUMN superseded_by uuid,
    ADD COLUMN superseded_at timestamptz,
    ADD COLUMN merged_from uuid[] NOT NULL DEFAULT '{}',
    ADD COLUMN agent text,
    ADD COLUMN caller_type text,
    ADD CONSTRAINT superseded_by_another CHECK (superseded_by <> id),
    ADD CONSTRAINT superseded_at_a_time CHECK ((superseded_by IS NULL) = (superseded_at IS NULL)),
    ADD CONSTRAINT expires_with_a_lifetime CHECK (expires_at IS NULL OR ttl_seconds IS NOT NULL),
    ADD CONSTRAINT observations_superseded_by_fkey FOREIGN KEY (superseded_by, project_id, team_id)
        REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE;
COMMENT ON COLUMN observations.ttl_seconds IS 'How long it lives after it was written; NULL is for good.';
COMMENT ON COLUMN observations.expires_at IS 'From then on it is not shown. NULL is never.';
COMMENT ON COLUMN observations.superseded_by IS 'The observation that it was merged into. Its text goes when that one is deleted.';
COMMENT ON COLUMN observations.agent IS 'Who wrote it by hand, in his own words.';
COMMENT ON COLUMN observations.caller_type IS 'The type that the caller gave, where it is none of ours.';

CREATE INDEX observations_superseded ON observations (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX observations_expiring ON observations (expires_at) WHERE expires_at IS NOT NULL;

-- As before, of what is not superseded, and with the end of life beside the words: what is counted is read from the index alone.
DROP INDEX observations_project;
CREATE INDEX observations_project ON observations (project_id, created_at, id)
    INCLUDE (team_id, content_words, expires_at) WHERE superseded_at IS NULL;
DROP INDEX observations_team_scope;
CREATE INDEX observations_team_scope ON observations (team_id, created_at, id)
    INCLUDE (project_id, content_words, expires_at) WHERE scope = 'team' AND superseded_at IS NULL;

CREATE FUNCTION observation_hash(title text, subtitle text, narrative text, facts text[], content text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    -- Letters and spaces do not matter. array_to_string is only STABLE for arrays of any type; for text it depends on nothing else.
    RETURN sha256(convert_to(lower(btrim(regexp_replace(
        concat_ws(E'\n', title, subtitle, narrative, array_to_string(facts, E'\n'),
                  CASE WHEN num_nonnulls(title, subtitle, narrative, facts) = 0 THEN content END),
        '\s+', ' ', 'g'))), 'UTF8'));
END $$;
CREATE INDEX observations_hash ON observations (project_id, observation_hash(title, subtitle, narrative, facts, content))
    WHERE superseded_at IS NULL AND kind = 'manual';

CREATE OR REPLACE VIEW observations_in_team AS
    SELECT * FROM observations
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
       AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- What was changed, and how it was before. What came of a change is the next row's `before`, or the observation itself.
CREATE TABLE observation_versions (
    id             uuid PRIMARY KEY,
    team_id        uuid NOT NULL,
    project_id     uuid NOT NULL,
    observation_id uuid NOT NULL,
    version        integer NOT NULL,
    action         text NOT NULL CHECK (action IN ('corrected', 'merged', 'promoted')),
    before         jsonb,
    source_ids     uuid[] NOT NULL DEFAULT '{}',
    strategy       text CHECK (strategy IN ('latest_wins', 'append', 'smart_merge')),
    similarity     real,
    measured_by    text CHECK (measured_by IN ('text', 'vector', 'words')),
    performed_by   text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    undone_at      timestamptz,
    CHECK ((before IS NULL) = (undone_at IS NOT NULL)),
    UNIQUE (observation_id, version),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE
);
CREATE INDEX observation_versions_team ON observation_versions (team_id, created_at, id);
CREATE INDEX observation_versions_sources ON observation_versions USING gin (source_ids) WHERE source_ids <> '{}';
COMMENT ON TABLE observation_versions IS 'The changes of observations: how each was before, and what it was merged from.';
COMMENT ON COLUMN observation_versions.version IS 'The version that the observation got with the change.';
COMMENT ON COLUMN observation_versions.performed_by IS 'The name of the key, or `system`.';

ALTER TABLE observation_versions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_versions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_versions TO cmserver_tenant;

CREATE VIEW consolidation_log AS
    SELECT v.created_at, t.name AS team, p.canonical_id AS project, o.number AS target, v.version, v.strategy, v.similarity,
           v.measured_by, v.performed_by, v.undone_at,
           ARRAY(SELECT s.number FROM observations s WHERE s.id = ANY(v.source_ids) ORDER BY s.number) AS sources
      FROM observation_versions v
      JOIN observations o ON o.id = v.observation_id
      JOIN projects p ON p.id = v.project_id
      JOIN teams t ON t.id = v.team_id
     WHERE v.action = 'merged';
COMMENT ON VIEW consolidation_log IS 'Merges of all teams, for operators: which observations became which, how alike they were, and who did it.';

ALTER TABLE observation_embeddings ADD COLUMN expires_at timestamptz, ADD COLUMN is_outdated boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN observation_embeddings.expires_at IS 'That of the observation; a trigger keeps it.';
COMMENT ON COLUMN observation_embeddings.is_outdated IS 'The text has changed since: the embedding is used until there is another.';
DROP INDEX observation_embeddings_waiting;
CREATE INDEX observation_embeddings_waiting ON observation_embeddings (model_id, next_at) WHERE embedding IS NULL OR is_outdated;

CREATE OR REPLACE FUNCTION observations_wait_for_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id, expires_at)
    SELECT n.id, m.id, n.team_id, n.project_id, n.expires_at
      FROM new_ones n CROSS JOIN embedding_models m WHERE m.state <> 'retired' AND n.superseded_at IS NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION observation_waits_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE observation_embeddings
       SET is_outdated = embedding IS NOT NULL, attempts = 0, next_at = now(), last_error = NULL
     WHERE observation_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;

CREATE FUNCTION observation_vectors_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.superseded_at IS NOT NULL THEN
        DELETE FROM observation_embeddings WHERE observation_id = NEW.id AND team_id = NEW.team_id;
    ELSIF OLD.superseded_at IS NOT NULL THEN
        INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id, expires_at)
        SELECT NEW.id, m.id, NEW.team_id, NEW.project_id, NEW.expires_at FROM embedding_models m WHERE m.state <> 'retired'
        ON CONFLICT DO NOTHING;
    ELSE
        UPDATE observation_embeddings SET expires_at = NEW.expires_at WHERE observation_id = NEW.id AND team_id = NEW.team_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER observations_vectors_follow AFTER UPDATE OF superseded_at, expires_at ON observations FOR EACH ROW
    WHEN ((OLD.superseded_at, OLD.expires_at) IS DISTINCT FROM (NEW.superseded_at, NEW.expires_at))
    EXECUTE FUNCTION observation_vectors_follow();
