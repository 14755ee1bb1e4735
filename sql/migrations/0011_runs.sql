-- A provider call is on record before it is made, and says what it cost however it ended.
--
-- Why: a row of generation_runs was written when an answer came, so that a call whose worker died, or whose answer came too late, was
-- paid for and counted nowhere. It is written first now, as 'asked' with an estimate of its tokens, and takes on what the provider said
-- when that comes; 'lost' is a call of which nobody will hear any more, and keeps its estimate. Budgets count by these rows: calls that
-- are under way count, too. Money is filled in where the model's price is known.
-- The view says how many calls have no price.
-- And policies of teams and projects may say how observations are worded: verbosity, language, skipRules.
-- The previous release keeps working: it writes none of the new states, and its answers count as before. It does not read a policy that
-- says one of the three, so let none say it while both releases run.
-- How long: the check is taken on without reading the rows, and then proven beside other work: some seconds per million calls.

ALTER TABLE generation_runs DROP CONSTRAINT generation_runs_status_check;
ALTER TABLE generation_runs ADD CONSTRAINT generation_runs_status_check
    CHECK (status IN ('asked', 'answered', 'applied', 'unusable', 'failed', 'lost')) NOT VALID;
ALTER TABLE generation_runs VALIDATE CONSTRAINT generation_runs_status_check;
COMMENT ON COLUMN generation_runs.status IS
    'asked (its tokens are an estimate), answered (not applied yet), applied, unusable (its answer is kept), failed (there was none), lost (nobody heard the end).';
COMMENT ON COLUMN generation_runs.answer IS
    'The raw answer until it has been applied: a crash between answer and write does not buy it twice. One that could not be used stays, for the operator.';
COMMENT ON COLUMN generation_runs.cost_usd IS 'By the provider, or by its price table; NULL where no price is known.';

-- The few that are under way.
CREATE INDEX generation_runs_asked ON generation_runs (created_at) WHERE status = 'asked';

DROP VIEW spend_by_project;
CREATE VIEW spend_by_project AS
    SELECT t.name AS team, p.canonical_id AS project, r.provider, r.model, date_trunc('day', r.created_at) AS day,
           count(*) AS calls, count(*) FILTER (WHERE r.status = 'failed') AS failed_calls,
           sum(r.input_tokens) AS input_tokens, sum(r.output_tokens) AS output_tokens,
           sum(r.cache_read_tokens) AS cache_read_tokens, sum(r.cache_write_tokens) AS cache_write_tokens,
           sum(r.cost_usd) AS cost_usd,
           count(*) FILTER (WHERE r.cost_usd IS NULL AND r.input_tokens + r.output_tokens > 0) AS unpriced_calls
      FROM generation_runs r JOIN projects p ON p.id = r.project_id JOIN teams t ON t.id = r.team_id
     GROUP BY 1, 2, 3, 4, 5;
COMMENT ON VIEW spend_by_project IS 'Provider calls, tokens and money by project, model and day.';

-- What psql writes there must be what the program reads, to the length of each text: a policy that it cannot read stops a project.
CREATE OR REPLACE FUNCTION is_generation_policy(policy jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN jsonb_typeof(policy) = 'object' THEN
               policy - ARRAY['mode', 'debounceSeconds', 'skipEventTypes', 'skipTools', 'verbosity', 'language', 'skipRules'] = '{}'
               AND coalesce(policy ->> 'mode', 'burst') IN ('per_event', 'burst', 'at_end')
               AND CASE WHEN jsonb_typeof(coalesce(policy -> 'debounceSeconds', '0')) = 'number'
                        THEN coalesce((policy ->> 'debounceSeconds')::numeric, 0) BETWEEN 0 AND 3600 ELSE false END
               AND coalesce(policy ->> 'verbosity', 'normal') IN ('minimal', 'normal', 'verbose')
               AND jsonb_typeof(coalesce(policy -> 'language', '"en"')) IN ('string', 'null')
               AND length(coalesce(policy ->> 'language', 'en')) BETWEEN 2 AND 40
               AND (SELECT bool_and(CASE WHEN jsonb_typeof(coalesce(policy -> list.name, '[]')) = 'array' THEN
                                         jsonb_array_length(coalesce(policy -> list.name, '[]')) <= list.most
                                         AND NOT EXISTS (SELECT FROM jsonb_array_elements(coalesce(policy -> list.name, '[]')) AS one(text)
                                                          WHERE jsonb_typeof(one.text) <> 'string'
                                                             OR length(one.text #>> '{}') NOT BETWEEN list.shortest AND list.longest)
                                         ELSE false END)
                      FROM (VALUES ('skipEventTypes', 100, 1, 100), ('skipTools', 100, 1, 100), ('skipRules', 50, 3, 200))
                           AS list(name, most, shortest, longest))
           ELSE false END;
END;
