-- Let the worker note what turns of before did, as it does at a turn's end since 0058.
--
-- Why: of turns that ended before, or came with an import, nothing said what later ones took out of them, nor that their checks pass since.
-- Their events are mostly still there. The worker reads them, a turn after the other in the order in which they were asked, which is that
-- of what git took back and of files that got other names; the project in which somebody worked last comes first. A turn without events,
-- or whose payloads are gone, is told by its words.
-- How long: turns and events are read, and a row is written for each turn that has any: some ten seconds for a million. The worker then
-- reads some hundred turns a second.

CREATE TABLE untraced_turns (
    place      bigint GENERATED ALWAYS AS IDENTITY,
    turn_id    uuid PRIMARY KEY,
    team_id    uuid NOT NULL,
    project_id uuid NOT NULL,
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE INDEX untraced_turns_place ON untraced_turns (place);
COMMENT ON TABLE untraced_turns IS 'Turns of which the worker shall still note what they did, in this order; a row goes when it has.';
ALTER TABLE untraced_turns ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON untraced_turns USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT ON untraced_turns TO cmserver_tenant;

INSERT INTO untraced_turns (turn_id, team_id, project_id)
SELECT t.id, t.team_id, t.project_id
  FROM turns t
 WHERE t.prompt_number IS NOT NULL
   AND NOT EXISTS (SELECT FROM turn_traces r WHERE r.turn_id = t.id)
   AND EXISTS (SELECT FROM agent_events e
                WHERE e.project_id = t.project_id AND e.server_session_id = t.server_session_id AND e.payload_purged_at IS NULL)
 ORDER BY max(t.created_at) OVER (PARTITION BY t.project_id) DESC, t.project_id, t.created_at, t.number;
