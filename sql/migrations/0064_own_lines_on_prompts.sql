-- Tell a prompt what a person says the line of a turn shall be, and nothing else of that turn.
--
-- Why: the line was left out, or written anew, where a session starts; a prompt was still told the turn's first words. Its sentences are
-- made of the line now, so a change of it lets them wait for the worker, as a change of the turn's words does.
-- How long: at once.
CREATE OR REPLACE FUNCTION turn_waits_for_sentences() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.ended_at IS NOT NULL
        AND (OLD.prompt, OLD.reply, OLD.own_line, OLD.search_language)
            IS NOT DISTINCT FROM (NEW.prompt, NEW.reply, NEW.own_line, NEW.search_language) THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO turn_sentences (turn_id, team_id, project_id) VALUES (NEW.id, NEW.team_id, NEW.project_id)
        ON CONFLICT (turn_id) DO UPDATE SET due_at = now(), texts = '{}', of_user = 0, words = '{}', model_id = 0, vectors = NULL,
            later_ids = '{}', later_places = '{}', nearness = '{}';
        IF TG_OP = 'UPDATE' AND OLD.ended_at IS NOT NULL AND OLD.reply IS NOT DISTINCT FROM NEW.reply THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE turn_sentences s
       SET due_at = now(), texts = '{}', of_user = 0, words = '{}', model_id = 0, vectors = NULL,
           later_ids = '{}', later_places = '{}', nearness = '{}'
      FROM turns t
     WHERE t.server_session_id = coalesce(NEW.server_session_id, OLD.server_session_id)
       AND t.team_id = coalesce(NEW.team_id, OLD.team_id)
       AND t.prompt_number = coalesce(NEW.prompt_number, OLD.prompt_number) + 1 AND s.turn_id = t.id;
    RETURN NULL;
END $$;
DROP TRIGGER turns_to_sentences ON turns;
CREATE TRIGGER turns_to_sentences AFTER INSERT OR UPDATE OF prompt, reply, own_line, ended_at, search_language ON turns FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL AND NEW.agent_id IS NULL) EXECUTE FUNCTION turn_waits_for_sentences();
