-- Keep what sub-agents were asked and answered, apart from what the user asked.
--
-- Why: it was in events only, until retention emptied them. A sub-agent has one turn, with its id at the agent and without a number in
-- the session: prompts stay numbered as the user typed them.
-- How long: a scan of turns for the check and the index, a second per million.

ALTER TABLE turns ADD COLUMN agent_id text;
ALTER TABLE turns ALTER COLUMN prompt_number DROP NOT NULL;
ALTER TABLE turns ADD CONSTRAINT turns_of_user_or_subagent CHECK ((prompt_number IS NULL) = (agent_id IS NOT NULL));
CREATE UNIQUE INDEX turns_subagent ON turns (server_session_id, agent_id) WHERE agent_id IS NOT NULL;
COMMENT ON COLUMN turns.prompt_number IS 'Counts the user''s prompts in the session. NULL for a sub-agent''s turn.';
COMMENT ON COLUMN turns.agent_id IS 'The sub-agent that was asked and answered, by its id at the agent. NULL for the session''s own.';
CREATE OR REPLACE VIEW turns_in_team AS
    SELECT * FROM turns WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;
