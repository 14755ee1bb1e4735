-- Find entities by meaning.
--
-- Why: an entity was found by a part of its name only. Its vector, of name, type and notes, stands in observation_embeddings beside those
-- of observations and turns, waits there since the transaction that makes it, and goes with it. People, places, projects, technologies,
-- concepts and organizations have one, and whatever has notes: of a bare file or symbol the name says all.
-- The previous release keeps working: it takes an entity that waits for a text that was deleted, and leaves it to the next one.
-- How long: the check is tried on all rows, a second for a million; two small indexes.

ALTER TABLE observation_embeddings DROP CONSTRAINT observation_embeddings_of_one;
ALTER TABLE observation_embeddings
    ADD COLUMN entity_id uuid,
    ADD CONSTRAINT observation_embeddings_entity_id_project_id_team_id_fkey FOREIGN KEY (entity_id, project_id, team_id)
        REFERENCES entities (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    ADD CONSTRAINT observation_embeddings_of_one CHECK (num_nonnulls(observation_id, turn_id, entity_id) = 1);
CREATE UNIQUE INDEX observation_embeddings_of_entity ON observation_embeddings (entity_id, model_id) WHERE entity_id IS NOT NULL;
CREATE INDEX observation_embeddings_entity_scope ON observation_embeddings (team_id, model_id, project_id)
 WHERE embedding IS NOT NULL AND entity_id IS NOT NULL;
COMMENT ON TABLE observation_embeddings IS
    'The place of each observation, turn and entity among meanings, by model. Without an embedding it waits for one.';
COMMENT ON COLUMN embedding_models.backfilled_to IS
    'Down to which observation, turn or entity, by id, earlier ones have their rows in observation_embeddings; of a retired model: have none any more.';

CREATE FUNCTION is_found_by_meaning(type text, notes text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT type IN ('person', 'place', 'project', 'technology', 'concept', 'organization') OR notes IS NOT NULL
$$;
COMMENT ON FUNCTION is_found_by_meaning IS 'Whether an entity of the type, with the notes, has a vector.';

CREATE FUNCTION entity_waits_for_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_embeddings AS e (entity_id, model_id, team_id, project_id)
    SELECT NEW.id, m.id, NEW.team_id, NEW.project_id FROM embedding_models m WHERE m.state <> 'retired'
    ON CONFLICT (entity_id, model_id) WHERE entity_id IS NOT NULL DO UPDATE
       SET is_outdated = e.embedding IS NOT NULL, attempts = 0, next_at = now(), last_error = NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER entities_to_embed AFTER INSERT ON entities FOR EACH ROW
    WHEN (is_found_by_meaning(NEW.type, NEW.notes)) EXECUTE FUNCTION entity_waits_for_embedding();
CREATE TRIGGER entities_to_embed_again AFTER UPDATE OF name, notes ON entities FOR EACH ROW
    WHEN ((OLD.name, OLD.notes) IS DISTINCT FROM (NEW.name, NEW.notes)
          AND (is_found_by_meaning(NEW.type, NEW.notes) OR OLD.notes IS NOT NULL))
    EXECUTE FUNCTION entity_waits_for_embedding();

INSERT INTO observation_embeddings (entity_id, model_id, team_id, project_id)
SELECT e.id, m.id, e.team_id, e.project_id FROM entities e CROSS JOIN embedding_models m
 WHERE m.state <> 'retired' AND is_found_by_meaning(e.type, e.notes);
