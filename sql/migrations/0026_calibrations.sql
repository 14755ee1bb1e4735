-- What a cosine of an embedding model says about a query, by team.
--
-- Why: an answer says how likely the query is about what was searched. The cosines of embedding models lie in different ranges, so what
-- is known of one model says nothing about the next. It is measured with titles of a team's own documents, and kept here.
-- By team and not by model alone: what one team has written must not move the answers of another, not even by a number.
-- The previous release keeps working: it does not know the table. How long: no time; the table is new.

CREATE TABLE embedding_calibrations (
    team_id       uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    model_id      smallint NOT NULL REFERENCES embedding_models (id) ON DELETE CASCADE,
    intercept     double precision NOT NULL,
    slope         double precision NOT NULL CHECK (slope > 0),
    titles        integer NOT NULL CHECK (titles >= 1),
    calibrated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, model_id)
);
CREATE INDEX embedding_calibrations_model ON embedding_calibrations (model_id);
COMMENT ON TABLE embedding_calibrations IS 'What the cosine of a query and its nearest document says about the query, by team and embedding model.';
COMMENT ON COLUMN embedding_calibrations.intercept IS 'The log-odds that a title is one of the project, at a cosine of 0.';
COMMENT ON COLUMN embedding_calibrations.slope IS 'How much they grow with the cosine.';
COMMENT ON COLUMN embedding_calibrations.titles IS 'How many titles of the team it was measured with.';

ALTER TABLE embedding_calibrations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON embedding_calibrations
    USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON embedding_calibrations TO cmserver_tenant;
