-- A project can be isolated: nothing of it is found from elsewhere, and it sees nothing that other projects share.
--
-- Why: work for a client, or anything that must not leak into other projects, shares one team with them. What an isolated project has
-- shared with the team becomes its own again, and stays so whoever writes it: no query can forget that. Searches of the whole team
-- leave it out.
-- The previous release keeps working: it shares nothing of an isolated project, but still finds it in searches of the whole team.
-- How long: instant.

ALTER TABLE projects ADD COLUMN isolated boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN projects.isolated IS 'Nothing of it is found from elsewhere, and it sees nothing that other projects share.';
CREATE INDEX projects_isolated ON projects (team_id) WHERE isolated;

CREATE FUNCTION isolated_projects_share_nothing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM projects WHERE id = NEW.project_id AND isolated) THEN
        NEW.scope := 'project';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER isolated_projects_share_nothing BEFORE INSERT OR UPDATE OF scope, project_id ON observations
    FOR EACH ROW WHEN (NEW.scope = 'team') EXECUTE FUNCTION isolated_projects_share_nothing();

CREATE FUNCTION project_is_isolated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE observations SET scope = 'project' WHERE project_id = NEW.id AND team_id = NEW.team_id AND scope = 'team';
    RETURN NULL;
END $$;
CREATE TRIGGER project_is_isolated AFTER UPDATE OF isolated ON projects
    FOR EACH ROW WHEN (NEW.isolated AND NOT OLD.isolated) EXECUTE FUNCTION project_is_isolated();
