-- Find by rules what every turn names, not only those that clients of the memory-service write.
--
-- Why: a file, command or error that a user asks about or an agent answers with was known to the entity only when an observation was
-- made of it. A turn that has ended, or gets another reply, goes onto the list of what is read for entities, in the same transaction.
-- The list holds observations and turns now, so its column is called as that of the mentions. The turns that are there are listed, too.
-- A worker of the previous release reads nothing for entities any more; what waits is read by the next one.
-- How long: a second for 100,000 turns; they are read in the background afterwards.

ALTER TABLE entity_rereads RENAME COLUMN observation_id TO place_id;
COMMENT ON TABLE entity_rereads IS
    'Turns that have ended, and observations that have changed since they were read for entities; some may be gone.';
COMMENT ON COLUMN entity_rereads.place_id IS 'The observation or the turn.';

ALTER FUNCTION observation_is_read_again() RENAME TO text_is_read_again;
CREATE OR REPLACE FUNCTION text_is_read_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO entity_rereads (place_id, team_id) VALUES (NEW.id, NEW.team_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER ended_turns_are_read AFTER INSERT ON turns
    FOR EACH ROW WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION text_is_read_again();
CREATE TRIGGER turns_are_read_again AFTER UPDATE OF prompt, reply, ended_at ON turns
    FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL
          AND (OLD.ended_at IS NULL OR (OLD.prompt, OLD.reply) IS DISTINCT FROM (NEW.prompt, NEW.reply)))
    EXECUTE FUNCTION text_is_read_again();

INSERT INTO entity_rereads (place_id, team_id)
SELECT id, team_id FROM turns WHERE ended_at IS NOT NULL
ON CONFLICT DO NOTHING;
