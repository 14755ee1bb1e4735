-- A model may word what people merge, where the project says so.
--
-- Why: merged by rules, two texts stand one after the other. With merge_with_model the configured model makes one text of them, which is
-- taken only when no fact is missing. Its calls are recorded and counted like all others: of the kind 'merge', and without jobs.
-- The previous release keeps working: it knows neither, and merges by rules.
-- How long: instant for the column; the check is taken on without reading the rows, and then proven beside other work: some seconds per
-- million calls.

ALTER TABLE projects ADD COLUMN merge_with_model boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN projects.merge_with_model IS 'Whether a model words what people merge; what is merged by itself is merged by rules.';

ALTER TABLE generation_runs DROP CONSTRAINT generation_runs_kind_check;
ALTER TABLE generation_runs ADD CONSTRAINT generation_runs_kind_check CHECK (kind IN ('observations', 'summary', 'merge')) NOT VALID;
ALTER TABLE generation_runs VALIDATE CONSTRAINT generation_runs_kind_check;
COMMENT ON COLUMN generation_runs.lane IS 'Of its jobs; a call of the kind merge has none, and its own id here.';
