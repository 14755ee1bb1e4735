-- Observations that say the same: suggestions to merge them, relations between them, and how far they are compared.
--
-- Why: what two sessions found out is stored twice. After generation new observations are compared with the project's; a pair that says
-- the same is suggested to people, or merged where the project says so (`projects.consolidation`). Numbers of a team are given out
-- in the order of commits, so one number says how far a team is compared.
-- The previous release keeps working: it knows none of this.
-- How long: instant; the tables are new and the columns empty.

ALTER TABLE projects ADD COLUMN consolidation text NOT NULL DEFAULT 'suggest' CHECK (consolidation IN ('off', 'suggest', 'merge'));
COMMENT ON COLUMN projects.consolidation IS 'What becomes of generated observations that say what is there already.';

CREATE TABLE observation_relationships (
    id              uuid PRIMARY KEY,
    team_id         uuid NOT NULL,
    from_id         uuid NOT NULL,
    from_project_id uuid NOT NULL,
    to_id           uuid NOT NULL,
    to_project_id   uuid NOT NULL,
    relationship    text NOT NULL CHECK (relationship ~ '^[A-Z][A-Z0-9_]{0,63}$'),
    strength        real NOT NULL DEFAULT 0.5 CHECK (strength BETWEEN 0 AND 1),
    context         text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (from_id, to_id, relationship),
    CHECK (from_id <> to_id),
    FOREIGN KEY (from_id, from_project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (to_id, to_project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE
);
CREATE INDEX observation_relationships_to ON observation_relationships (to_id);
COMMENT ON TABLE observation_relationships IS 'How observations of a team have to do with each other: SUPERSEDES and DERIVED_FROM by the system, all others by callers.';

CREATE TABLE consolidation_suggestions (
    id          uuid PRIMARY KEY,
    team_id     uuid NOT NULL,
    project_id  uuid NOT NULL,
    left_id     uuid NOT NULL,
    right_id    uuid NOT NULL,
    similarity  real NOT NULL,
    measured_by text NOT NULL CHECK (measured_by IN ('vector', 'words')),
    reason      text NOT NULL CHECK (reason IN ('same', 'related', 'contradicts')),
    status      text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'accepted', 'dismissed')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    resolved_at timestamptz,
    resolved_by text,
    UNIQUE (left_id, right_id),
    CHECK (left_id < right_id),
    CHECK ((status = 'open') = (resolved_at IS NULL)),
    FOREIGN KEY (left_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (right_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE
);
CREATE INDEX consolidation_suggestions_right ON consolidation_suggestions (right_id);
CREATE INDEX consolidation_suggestions_team ON consolidation_suggestions (team_id, created_at, id);
CREATE INDEX consolidation_suggestions_open ON consolidation_suggestions (team_id, project_id, similarity) WHERE status = 'open';
COMMENT ON TABLE consolidation_suggestions IS 'Pairs of observations that seem to say the same, or to contradict each other. What was dismissed is not suggested again.';

CREATE TABLE consolidation_progress (
    team_id     uuid PRIMARY KEY REFERENCES teams (id) ON DELETE CASCADE,
    compared_to bigint NOT NULL DEFAULT 0
);
-- What is there already is not compared: for a million it would take hours.
INSERT INTO consolidation_progress (team_id, compared_to) SELECT team_id, last_number FROM observation_counters;
COMMENT ON TABLE consolidation_progress IS 'Up to which number the observations of a team are compared with the others of their projects.';

ALTER TABLE observation_relationships ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_relationships USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE consolidation_suggestions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON consolidation_suggestions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE consolidation_progress ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON consolidation_progress USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_relationships, consolidation_suggestions TO cmserver_tenant;
GRANT SELECT, INSERT, UPDATE ON consolidation_progress TO cmserver_tenant;
