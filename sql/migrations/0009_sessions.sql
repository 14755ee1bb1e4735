-- Sessions are listed, end by themselves when nobody ends them, and observations are made when the project's policy says.
--
-- Why: a page of a team's or a project's sessions, also of those that are open, is read from an index in its order. `idle_from` is
-- what the idle sweep goes by: an agent that crashes or loses its network never ends its session, and its summary would never be
-- written. It is written seldom (a start; the first sign of life after a summary), not with each event: the sweep itself looks at
-- the events of the few sessions that seem idle. `at_most` is for the policy per_event, which gives each event a call of its own; `waits_for_end`
-- for the policy at_end.
-- The open sessions that are there count as alive now. The previous release keeps working; the sessions it ends are looked at once.
-- How long: some seconds per million sessions, for three indexes and the rows of open sessions; writing to sessions waits meanwhile.

ALTER TABLE server_sessions ADD COLUMN idle_from timestamptz;
UPDATE server_sessions SET idle_from = now() WHERE ended_at IS NULL;
ALTER TABLE server_sessions ALTER COLUMN idle_from SET DEFAULT now();

-- True of every session: see 0008.
CREATE INDEX server_sessions_team ON server_sessions (team_id, started_at, id) WHERE started_at > '-infinity';
CREATE INDEX server_sessions_open ON server_sessions (team_id, started_at, id) WHERE ended_at IS NULL;
CREATE INDEX server_sessions_idle ON server_sessions (idle_from) WHERE idle_from IS NOT NULL;

ALTER TABLE generation_lanes ADD COLUMN at_most integer CHECK (at_most >= 1);
ALTER TABLE observation_generation_jobs ADD COLUMN waits_for_end boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN server_sessions.idle_from IS 'The last sign of life that the idle sweep knows of; it looks at the session again when that is long ago. NULL when its last run has its summary and nothing has come since.';
COMMENT ON COLUMN generation_lanes.at_most IS 'How many events one provider call may serve, where the policy of the last one says so; NULL for as many as the settings allow.';
COMMENT ON COLUMN observation_generation_jobs.waits_for_end IS 'By the policy at_end: the job alone does not make its lane due. Cleared when it is claimed.';
