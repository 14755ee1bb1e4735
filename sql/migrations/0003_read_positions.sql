-- One table of read positions: entity_progress, consolidation_progress, access_counting and retention_marks go into it
--
-- Each reader of observations and logs had a table of its own to remember how far it is. Now a position has a name, and belongs to a
-- team or, as one in a log of all teams, to none; such rows no request sees. No position is lost. Processes of the older version go on
-- taking events; what their workers read on (entities, comparison, accesses, retention) is done by workers of the new one.
--
-- How long: milliseconds, a row for each team, after the transactions that keep a position just then.

-- Until the end: a position that an open transaction keeps would be copied as it was before, and what it counted be counted twice.
LOCK TABLE entity_progress, consolidation_progress, access_counting, retention_marks IN ACCESS EXCLUSIVE MODE;

CREATE TABLE read_positions (
    name              text NOT NULL,
    team_id           uuid REFERENCES teams (id) ON DELETE CASCADE,
    read_to           bigint NOT NULL DEFAULT 0,
    fence_id          bigint NOT NULL DEFAULT 0,
    fence_transaction xid8,
    CONSTRAINT read_positions_name UNIQUE NULLS NOT DISTINCT (team_id, name)
);
COMMENT ON TABLE read_positions IS 'How far what comes in is read, by whom: observations of a team, or a log of all teams.';
COMMENT ON COLUMN read_positions.team_id IS 'NULL for a log of all teams.';
COMMENT ON COLUMN read_positions.read_to IS 'The number of the last observation, or the id of the last row of the log.';
COMMENT ON COLUMN read_positions.fence_id IS 'Up to here the log is read next, when every transaction below fence_transaction is over.';
ALTER TABLE read_positions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON read_positions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON read_positions TO cmserver_tenant;

INSERT INTO read_positions (name, team_id, read_to) SELECT 'entities', team_id, read_to FROM entity_progress;
INSERT INTO read_positions (name, team_id, read_to) SELECT 'comparison', team_id, compared_to FROM consolidation_progress;
INSERT INTO read_positions (name, read_to, fence_id, fence_transaction)
SELECT 'accesses', counted_to, seen_to, seen_below FROM access_counting;
INSERT INTO read_positions (name, read_to) SELECT 'retention.' || kind, read_to FROM retention_marks;

COMMENT ON FUNCTION requeue_stale IS 'Gives back what dead workers hold; returns the jobs. Every worker does this every two seconds while any lane is held.';

-- What workers do each minute are no tasks of procrastinate any more. What runs just then goes by itself.
CREATE TEMPORARY TABLE gone_tasks ON COMMIT DROP AS
SELECT unnest(ARRAY['ingest.end_idle_sessions', 'observations.count_accesses', 'consolidation.compare', 'projects.move_strays',
                    'steward.plan']) AS name;
DELETE FROM procrastinate_periodic_defers USING gone_tasks WHERE task_name = name;
DELETE FROM procrastinate_jobs USING gone_tasks WHERE task_name = name AND status <> 'doing';

DROP TABLE entity_progress, consolidation_progress, access_counting, retention_marks;
