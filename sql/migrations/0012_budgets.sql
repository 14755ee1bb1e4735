-- Budgets: how many tokens and how much money a team or a project may spend in a day or a month, and what it has spent.
--
-- Why: a call of a provider is made only while every budget that it falls under has something left, which is asked right before each.
-- Summing up a month of a million calls took 90 ms from an index made for it, and 0.35 s without; so what is spent is kept by day,
-- project and model beside the calls themselves, and four budgets of such a month are looked at in half a millisecond. Triggers keep
-- it (0.1 ms a statement): no call can be written that is not counted. It is counted from when a call is asked, with its estimate,
-- and put right when its answer says what it took. What is erased stays spent: a purge would else be a way to spend twice, and no
-- text and no name of a project is in it.
-- The previous release keeps working: its calls are counted, too, and it asks no budget.
-- How long: the calls there are are summed up once, a second per million; calls that end meanwhile wait to be written down.

CREATE TABLE budgets (
    id           uuid PRIMARY KEY,
    team_id      uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id   uuid,
    period       text NOT NULL CHECK (period IN ('day', 'month')),
    max_tokens   bigint CHECK (max_tokens > 0),
    max_usd      numeric CHECK (max_usd > 0),
    warned_at    timestamptz,
    exhausted_at timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (team_id, project_id, period),
    CHECK (num_nonnulls(max_tokens, max_usd) > 0),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
COMMENT ON TABLE budgets IS 'How much a team, or one of its projects, may spend on providers in a calendar day or month (UTC); at the cap generation waits.';
COMMENT ON COLUMN budgets.project_id IS 'NULL is the whole team.';
COMMENT ON COLUMN budgets.warned_at IS 'When it was last said that 80 % are spent: once a period. NULL again when the budget is changed.';
COMMENT ON COLUMN budgets.exhausted_at IS 'When it was last said that all is spent: once a period. NULL again when the budget is changed.';

-- No reference to the project: what a team has spent stays spent when a project goes.
CREATE TABLE generation_spending (
    team_id            uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    day                date NOT NULL,
    project_id         uuid NOT NULL,
    provider           text NOT NULL,
    model              text NOT NULL,
    calls              bigint NOT NULL,
    failed_calls       bigint NOT NULL,
    unpriced_calls     bigint NOT NULL,
    input_tokens       bigint NOT NULL,
    output_tokens      bigint NOT NULL,
    cache_read_tokens  bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_usd           numeric NOT NULL,
    PRIMARY KEY (team_id, day, project_id, provider, model)
) WITH (fillfactor = 70);
COMMENT ON TABLE generation_spending IS 'What was spent on providers, by day (UTC), project and model: the sums of generation_runs, kept by its triggers, and by what is gone from it.';
COMMENT ON COLUMN generation_spending.failed_calls IS 'Those that gave no answer that could be used, and those whose end nobody heard.';
COMMENT ON COLUMN generation_spending.unpriced_calls IS 'Those with tokens whose price is not known; they are not in cost_usd.';

-- Adds to the sums what has changed; of a call that has changed, what it was is taken away. One statement may be many calls: their sums
-- are taken in one order, so that two statements never wait for each other.
CREATE FUNCTION generation_runs_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO generation_spending AS s
        SELECT team_id, (created_at AT TIME ZONE 'UTC')::date, project_id, provider, model, sum(sign),
               coalesce(sum(sign) FILTER (WHERE status IN ('failed', 'unusable', 'lost')), 0),
               coalesce(sum(sign) FILTER (WHERE cost_usd IS NULL
                   AND (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens) <> (0, 0, 0, 0)), 0),
               sum(sign * input_tokens), sum(sign * output_tokens), sum(sign * cache_read_tokens), sum(sign * cache_write_tokens),
               coalesce(sum(sign * cost_usd), 0)
          FROM (SELECT 1 AS sign, n.* FROM new_rows n) r
         GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (team_id, day, project_id, provider, model) DO UPDATE
           SET calls = s.calls + excluded.calls, failed_calls = s.failed_calls + excluded.failed_calls,
               unpriced_calls = s.unpriced_calls + excluded.unpriced_calls, input_tokens = s.input_tokens + excluded.input_tokens,
               output_tokens = s.output_tokens + excluded.output_tokens,
               cache_read_tokens = s.cache_read_tokens + excluded.cache_read_tokens,
               cache_write_tokens = s.cache_write_tokens + excluded.cache_write_tokens, cost_usd = s.cost_usd + excluded.cost_usd;
    ELSIF EXISTS (SELECT FROM new_rows n JOIN old_rows o ON o.id = n.id
                   WHERE (n.model, n.status IN ('failed', 'unusable', 'lost'), n.cost_usd, n.input_tokens, n.output_tokens,
                          n.cache_read_tokens, n.cache_write_tokens)
                         IS DISTINCT FROM (o.model, o.status IN ('failed', 'unusable', 'lost'), o.cost_usd, o.input_tokens,
                          o.output_tokens, o.cache_read_tokens, o.cache_write_tokens)) THEN
        INSERT INTO generation_spending AS s
        SELECT team_id, (created_at AT TIME ZONE 'UTC')::date, project_id, provider, model, sum(sign),
               coalesce(sum(sign) FILTER (WHERE status IN ('failed', 'unusable', 'lost')), 0),
               coalesce(sum(sign) FILTER (WHERE cost_usd IS NULL
                   AND (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens) <> (0, 0, 0, 0)), 0),
               sum(sign * input_tokens), sum(sign * output_tokens), sum(sign * cache_read_tokens), sum(sign * cache_write_tokens),
               coalesce(sum(sign * cost_usd), 0)
          FROM (SELECT 1 AS sign, n.* FROM new_rows n UNION ALL SELECT -1, o.* FROM old_rows o) r
         GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (team_id, day, project_id, provider, model) DO UPDATE
           SET calls = s.calls + excluded.calls, failed_calls = s.failed_calls + excluded.failed_calls,
               unpriced_calls = s.unpriced_calls + excluded.unpriced_calls, input_tokens = s.input_tokens + excluded.input_tokens,
               output_tokens = s.output_tokens + excluded.output_tokens,
               cache_read_tokens = s.cache_read_tokens + excluded.cache_read_tokens,
               cache_write_tokens = s.cache_write_tokens + excluded.cache_write_tokens, cost_usd = s.cost_usd + excluded.cost_usd;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER generation_runs_count_new AFTER INSERT ON generation_runs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION generation_runs_count();
CREATE TRIGGER generation_runs_count_changed AFTER UPDATE ON generation_runs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION generation_runs_count();

INSERT INTO generation_spending
SELECT team_id, (created_at AT TIME ZONE 'UTC')::date, project_id, provider, model, count(*),
       count(*) FILTER (WHERE status IN ('failed', 'unusable', 'lost')),
       count(*) FILTER (WHERE cost_usd IS NULL
           AND (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens) <> (0, 0, 0, 0)),
       sum(input_tokens), sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens), coalesce(sum(cost_usd), 0)
  FROM generation_runs GROUP BY 1, 2, 3, 4, 5;

COMMENT ON COLUMN generation_lanes.held_for IS
    'The provider whose pause holds the lane; budget, where it waits for money; NULL for a back-off.';

ALTER TABLE budgets ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON budgets USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE generation_spending ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON generation_spending USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

GRANT SELECT, INSERT, UPDATE, DELETE ON budgets TO cmserver_tenant;
GRANT SELECT ON generation_spending TO cmserver_tenant;
