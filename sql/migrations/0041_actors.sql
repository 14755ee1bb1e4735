-- Say whose key an observation and a session came by, and of which turn an observation was made.
--
-- Why: in a team nobody was named but on turns. An observation says whose agent it was drawn from, or who wrote it; a session, whose agent
-- began it. The observation's number of its turn leads to what was asked and answered (#12), also when the session is not known.
-- Observations that were generated get both from their job and session; those of before that people wrote have no actor.
-- How long: each generated observation is written once more, some 20 seconds per million of them, and its table is locked meanwhile.

ALTER TABLE observations ADD COLUMN actor_id text, ADD COLUMN turn_number bigint;
ALTER TABLE server_sessions ADD COLUMN actor_id text;
COMMENT ON COLUMN observations.actor_id IS 'Whose key it came by.';
COMMENT ON COLUMN observations.turn_number IS 'The number of the turn that it was made of; that may be deleted.';
COMMENT ON COLUMN server_sessions.actor_id IS 'Whose key began it.';
CREATE OR REPLACE VIEW observations_in_team AS
    SELECT * FROM observations
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
       AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > now());

UPDATE server_sessions s SET actor_id = t.actor_id
  FROM (SELECT DISTINCT ON (server_session_id) server_session_id, actor_id FROM turns
         WHERE actor_id IS NOT NULL ORDER BY server_session_id, prompt_number) t
 WHERE t.server_session_id = s.id;
UPDATE observations o
   SET actor_id = coalesce(CASE WHEN o.kind <> 'summary' THEN j.actor_id END, s.actor_id),
       turn_number = (SELECT t.number FROM turns t
                       WHERE t.server_session_id = o.server_session_id AND t.prompt_number = o.prompt_number)
  FROM observation_generation_jobs j
  LEFT JOIN server_sessions s ON s.id = j.server_session_id
 WHERE j.id = o.created_by_job_id;
