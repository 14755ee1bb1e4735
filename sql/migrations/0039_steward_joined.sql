-- What the steward derived follows its observations into another project and back.
--
-- Why: a project that is joined to another one takes its observations along, and with them what was derived. Where both had derived the
-- same, the unique key refused the join. What was taken back or refused in the joined project was forgotten by the other one, and would
-- have been derived again. Jobs and runs stay with the project in whose name they were made, as the audit log does.
-- The previous release keeps working, but for what it would derive: its jobs end as dead letters, and can be retried afterwards.
-- How long: instant; the table has a row for each derivation.

ALTER TABLE observation_derivations DROP CONSTRAINT observation_derivations_project_id_fingerprint_key;
CREATE INDEX observation_derivations_fingerprint ON observation_derivations (project_id, fingerprint);

CREATE FUNCTION derivations_follow_project() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.joined_to IS NOT NULL THEN
        UPDATE observation_derivations SET project_id = NEW.joined_to
         WHERE project_id = NEW.id AND team_id = NEW.team_id AND derived_observation_id IS NULL;
    ELSE
        UPDATE observation_derivations d SET project_id = NEW.id
         WHERE d.project_id = OLD.joined_to AND d.team_id = NEW.team_id AND d.derived_observation_id IS NULL
           AND EXISTS (SELECT FROM observations o
                        WHERE o.id = ANY(d.source_observation_ids) AND o.project_id = NEW.id AND o.team_id = NEW.team_id);
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION derivations_follow_project() IS 'Moves what was derived but is not stored; what is stored follows its observation.';
CREATE TRIGGER derivations_follow_project AFTER UPDATE OF joined_to ON projects
    FOR EACH ROW WHEN (OLD.joined_to IS DISTINCT FROM NEW.joined_to OR NEW.joined_to IS NOT NULL)
    EXECUTE FUNCTION derivations_follow_project();
