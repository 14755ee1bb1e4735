-- An overview of a project without summaries cites turns, and forgets those that are deleted or moved, as it forgets observations.
--
-- The previous release keeps working: its overviews cite no turns.
-- How long: instant.

CREATE TRIGGER overviews_forget_deleted AFTER DELETE ON turns REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION overviews_forget_deleted();
CREATE TRIGGER overviews_forget_changed AFTER UPDATE OF project_id ON turns FOR EACH ROW
    WHEN (OLD.project_id IS DISTINCT FROM NEW.project_id) EXECUTE FUNCTION overviews_forget_changed();

COMMENT ON COLUMN project_overviews.numbers IS 'The observations and turns that it cites.';
COMMENT ON COLUMN project_overviews.made_by IS '`rules`, the model that wrote it, or `people`.';
