-- What is kept only for a time goes by itself: a sweep, and per team and project how long each kind is kept.
--
-- Why: events, logs and receipts grow with every call of an agent, and nobody reads them after some months; what expired or was
-- superseded is kept for its days of undo and then has to go. A project says how long, else its team, else the settings (`retention`,
-- beside the policy of generation). The sweep counts what it took, by team and kind, so that the sums of `cmserver verify` explain
-- themselves. Of an event the payload goes first: the row stays, so that what was sent twice is still known, and what came of it.
-- Two logs are read in the order of their ids; retention_marks says how far the current pass is, and a pass begins anew at the end.
-- The previous release keeps working: it knows none of it and needs none.
-- How long: a moment for the columns; some seconds per million events for the two indexes; reading and writing events waits meanwhile.

-- What psql writes there must be what the program reads.
CREATE FUNCTION is_retention_policy(policy jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN jsonb_typeof(policy) = 'object' THEN
               policy - ARRAY['observationsDays', 'minImportance', 'promoteAccesses', 'eventsDays', 'jobLogDays', 'receiptsDays',
                              'auditDays'] = '{}'
               AND (SELECT bool_and(CASE jsonb_typeof(coalesce(policy -> field.name, 'null'))
                                         WHEN 'null' THEN true
                                         WHEN 'number' THEN (policy ->> field.name)::numeric BETWEEN field.least AND field.most
                                              AND (field.name = 'minImportance' OR scale((policy ->> field.name)::numeric) = 0)
                                         ELSE false END)
                      FROM (VALUES ('observationsDays', 0, 36500), ('minImportance', 0, 1), ('promoteAccesses', 1, 1000000),
                                   ('eventsDays', 0, 36500), ('jobLogDays', 0, 36500), ('receiptsDays', 0, 36500),
                                   ('auditDays', 0, 36500)) AS field(name, least, most))
           ELSE false END;
END;
ALTER TABLE teams ADD COLUMN retention jsonb NOT NULL DEFAULT '{}' CHECK (is_retention_policy(retention));
ALTER TABLE projects ADD COLUMN retention jsonb NOT NULL DEFAULT '{}' CHECK (is_retention_policy(retention));
COMMENT ON COLUMN teams.retention IS 'How long what is kept; a project may say it for itself. 0 days is for good.';

ALTER TABLE agent_events ADD COLUMN payload_purged_at timestamptz;
COMMENT ON TABLE agent_events IS 'What agents reported, once each, redacted. Never changed, but for the payload, which retention may empty.';
COMMENT ON COLUMN agent_events.payload_purged_at IS 'When the payload was emptied; NULL while it is there.';
CREATE INDEX agent_events_payload ON agent_events (project_id, received_at) WHERE payload_purged_at IS NULL;
CREATE INDEX agent_events_purged ON agent_events (payload_purged_at) WHERE payload_purged_at IS NOT NULL;

ALTER TABLE observation_versions ADD COLUMN sources_purged_at timestamptz;
COMMENT ON COLUMN observation_versions.sources_purged_at IS 'When the texts of merged sources went; from then on the merge cannot be undone.';

CREATE TABLE retention_counts (
    team_id   uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    kind      text NOT NULL,
    row_count bigint NOT NULL CHECK (row_count >= 0),
    last_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, kind)
);
COMMENT ON TABLE retention_counts IS 'How many rows retention took of each team, by kind, since it exists.';
ALTER TABLE retention_counts ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON retention_counts USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

CREATE TABLE retention_marks (
    kind    text PRIMARY KEY,
    read_to bigint NOT NULL
);
COMMENT ON TABLE retention_marks IS 'Up to which row of a log the current pass of retention has looked.';
