-- Keep the sentences of a turn that say most, with their words and their places among meanings.
--
-- Why: what belongs to a prompt was looked for among observations, whose titles say a part of what was said. Now the nearest sentences
-- are told, and a sentence points to the nearest later one. The worker writes them at a turn's end: at most eight, one row a turn, the
-- vectors of all of them in one array of at most 2 kB. A turn that ends, or whose text changes, waits in its row from the same transaction on; without the text it had, so that
-- nothing of what was taken out of a turn stays here. Old turns wait too, and are read the newest first.
-- How long: an index is made of turns, and a row for each: some ten seconds for a million. The worker then reads a thousand a second.

CREATE TABLE turn_sentences (
    turn_id    uuid PRIMARY KEY,
    team_id    uuid NOT NULL,
    project_id uuid NOT NULL,
    due_at     timestamptz DEFAULT now(),
    texts      text[] NOT NULL DEFAULT '{}',
    of_user    smallint NOT NULL DEFAULT 0,
    words      tsvector[] NOT NULL DEFAULT '{}',
    model_id   integer NOT NULL DEFAULT 0,
    vectors    bytea,
    later_ids  uuid[] NOT NULL DEFAULT '{}',
    later_places smallint[] NOT NULL DEFAULT '{}',
    nearness   real[] NOT NULL DEFAULT '{}',
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE
) WITH (toast_tuple_target = 8160); -- read by the hundred: in the row itself
CREATE INDEX turn_sentences_due ON turn_sentences (turn_id) WHERE due_at IS NOT NULL;
CREATE INDEX turn_sentences_model ON turn_sentences (model_id, turn_id);
COMMENT ON TABLE turn_sentences IS 'The sentences of a turn that say most, the user''s first.';
COMMENT ON COLUMN turn_sentences.due_at IS
    'When the worker shall write them, or at the latest, while it has them in hand. NULL when they are written.';
COMMENT ON COLUMN turn_sentences.of_user IS 'How many of the first are the user''s; the others are the agent''s.';
COMMENT ON COLUMN turn_sentences.words IS 'The words of each, as search knows them.';
COMMENT ON COLUMN turn_sentences.model_id IS 'The embedding model that was asked for their vectors; 0 without one.';
COMMENT ON COLUMN turn_sentences.later_ids IS
    'For each sentence the later turn of the project in which the nearest later one was said, NULL without one. It may be gone.';
COMMENT ON COLUMN turn_sentences.later_places IS 'Which of its sentences that is, from 0.';
COMMENT ON COLUMN turn_sentences.nearness IS 'How near it is.';
COMMENT ON COLUMN turn_sentences.vectors IS
    'A vector of length 127 for each, one after the other, a signed byte a number. NULL where the model made none.';
ALTER TABLE turn_sentences ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON turn_sentences USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON turn_sentences TO cmserver_tenant;

CREATE FUNCTION turn_waits_for_sentences() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.ended_at IS NOT NULL AND (OLD.prompt, OLD.reply) IS NOT DISTINCT FROM (NEW.prompt, NEW.reply) THEN
        RETURN NULL;
    END IF;
    INSERT INTO turn_sentences (turn_id, team_id, project_id) VALUES (NEW.id, NEW.team_id, NEW.project_id)
    ON CONFLICT (turn_id) DO UPDATE SET due_at = now(), texts = '{}', of_user = 0, words = '{}', model_id = 0, vectors = NULL,
        later_ids = '{}', later_places = '{}', nearness = '{}';
    -- A short answer is kept with what it answers.
    UPDATE turn_sentences s SET due_at = now()
      FROM turns t
     WHERE t.server_session_id = NEW.server_session_id AND t.team_id = NEW.team_id AND t.prompt_number = NEW.prompt_number + 1
       AND s.turn_id = t.id;
    RETURN NULL;
END $$;
CREATE TRIGGER turns_to_sentences AFTER INSERT OR UPDATE OF prompt, reply, ended_at ON turns FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL AND NEW.agent_id IS NULL) EXECUTE FUNCTION turn_waits_for_sentences();

INSERT INTO turn_sentences (turn_id, team_id, project_id)
SELECT id, team_id, project_id FROM turns WHERE ended_at IS NOT NULL AND agent_id IS NULL;
