-- An observation that is edited in psql says when, as any other; the log of jobs has no step that is never written.
-- How long: the log of jobs is read once.

CREATE FUNCTION observation_is_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END $$;
COMMENT ON FUNCTION observation_is_changed IS 'For edits that do not say when they were made. What is read, expires or is merged does not change.';

CREATE TRIGGER observations_are_changed BEFORE UPDATE OF type, scope, title, subtitle, narrative, facts, concepts, files_read,
    files_modified, summary, content, importance, metadata, state, quote ON observations FOR EACH ROW
    WHEN (new.updated_at = old.updated_at
          AND (new.type, new.scope, new.title, new.subtitle, new.narrative, new.facts, new.concepts, new.files_read,
               new.files_modified, new.summary, new.content, new.importance, new.metadata, new.state, new.quote)
              IS DISTINCT FROM
              (old.type, old.scope, old.title, old.subtitle, old.narrative, old.facts, old.concepts, old.files_read,
               old.files_modified, old.summary, old.content, old.importance, old.metadata, old.state, old.quote))
    EXECUTE FUNCTION observation_is_changed();

ALTER TABLE observation_generation_job_events
    DROP CONSTRAINT observation_generation_job_events_event_type_check,
    ADD CONSTRAINT observation_generation_job_events_event_type_check
        CHECK (event_type IN ('queued', 'processing', 'retry_scheduled', 'completed', 'failed', 'cancelled'));
