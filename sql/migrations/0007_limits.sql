-- Rate limits and quotas: how much each key and team has used, shared by all processes.
--
-- Why: a key and a team may have a limit of requests per minute and of events per month (NULL on api_keys and teams: none). Each
-- process counts in memory and tells it here at most once a second a key, so requests cost no write of their own.
-- The previous release keeps working: it counts nothing and knows none of this.
-- How long: instant for the tables, which are new; the index on generation_runs some seconds per million provider calls, which wait
-- meanwhile to be written down.

-- A bucket holds one minute's worth of requests and is refilled evenly. It may be overdrawn by as much: what several processes let
-- pass in the same second is paid back.
CREATE TABLE rate_limits (
    id          uuid PRIMARY KEY,
    team_id     uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    per_minute  integer NOT NULL CHECK (per_minute > 0),
    tokens      double precision NOT NULL CHECK (tokens BETWEEN -per_minute AND per_minute),
    refilled_at timestamptz NOT NULL
);
CREATE INDEX rate_limits_team ON rate_limits (team_id);

-- No reference to the key: what a team has used stays used when a key goes with its project.
CREATE TABLE usage_counters (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    month      date NOT NULL CHECK (extract(day FROM month) = 1),
    kind       text NOT NULL CHECK (kind IN ('requests', 'events')),
    api_key_id uuid NOT NULL,
    amount     bigint NOT NULL CHECK (amount >= 0),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, month, kind, api_key_id)
);

CREATE INDEX generation_runs_team ON generation_runs (team_id, created_at);

COMMENT ON TABLE rate_limits IS 'Token buckets of keys and teams with a limit of requests per minute; the id is the key''s or the team''s.';
COMMENT ON TABLE usage_counters IS 'Requests and newly stored events of each key, by calendar month (UTC).';

ALTER TABLE rate_limits ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON rate_limits USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE usage_counters ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON usage_counters USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

GRANT SELECT, INSERT, UPDATE ON rate_limits, usage_counters TO cmserver_tenant;
