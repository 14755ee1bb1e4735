-- Overviews: one page about each project, and how many session summaries came since it was made.
--
-- Why: no page said what a project is. It is made of what is remembered, with the numbers of the observations, and made anew after ten
-- summaries. A page repeats what observations say, so it is emptied when one that it cites is deleted or changed; it is made again soon.
-- The previous release keeps working: it knows none of this.
-- How long: instant; the table is new.

CREATE TABLE project_overviews (
    id            uuid PRIMARY KEY,
    project_id    uuid NOT NULL UNIQUE,
    team_id       uuid NOT NULL,
    body          text,
    opening       text[] NOT NULL DEFAULT '{}',
    numbers       bigint[] NOT NULL DEFAULT '{}',
    made_by       text NOT NULL DEFAULT 'rules',
    summary_count integer NOT NULL DEFAULT 0,
    new_summaries integer NOT NULL DEFAULT 0,
    made_at       timestamptz,
    CHECK ((body IS NULL) = (made_at IS NULL)),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX project_overviews_due ON project_overviews (team_id) WHERE body IS NULL OR new_summaries >= 10;
COMMENT ON TABLE project_overviews IS 'The page about each project. Without a body it is still to be made.';
COMMENT ON COLUMN project_overviews.opening IS 'The lines with which the index of a session begins.';
COMMENT ON COLUMN project_overviews.numbers IS 'The observations that it cites.';
COMMENT ON COLUMN project_overviews.made_by IS '`rules`, or the model that wrote it.';
COMMENT ON COLUMN project_overviews.new_summaries IS 'Session summaries since it was made.';

CREATE FUNCTION overviews_forget_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE project_overviews p SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
      FROM (SELECT project_id, array_agg(number) AS numbers FROM old_rows GROUP BY project_id) o
     WHERE p.project_id = o.project_id AND p.numbers && o.numbers;
    RETURN NULL;
END $$;
CREATE TRIGGER overviews_forget_deleted AFTER DELETE ON observations REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION overviews_forget_deleted();

CREATE FUNCTION overviews_forget_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE project_overviews SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
     WHERE project_id = OLD.project_id AND numbers @> ARRAY[OLD.number];
    RETURN NULL;
END $$;
CREATE TRIGGER overviews_forget_changed AFTER UPDATE OF title, content, summary, superseded_at, project_id ON observations FOR EACH ROW
    WHEN ((OLD.title, OLD.content, OLD.summary, OLD.superseded_at, OLD.project_id)
          IS DISTINCT FROM (NEW.title, NEW.content, NEW.summary, NEW.superseded_at, NEW.project_id))
    EXECUTE FUNCTION overviews_forget_changed();

-- An open end that was closed is no secret: the page is right again after the next summaries.
CREATE FUNCTION overviews_age() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE project_overviews SET new_summaries = new_summaries + 1
     WHERE project_id = NEW.project_id AND numbers @> ARRAY[NEW.number];
    RETURN NULL;
END $$;
CREATE TRIGGER overviews_age AFTER UPDATE OF state ON observations FOR EACH ROW
    WHEN (OLD.state = 'open' AND NEW.state IS DISTINCT FROM 'open') EXECUTE FUNCTION overviews_age();

-- The page has names of entities, too.
CREATE FUNCTION overviews_forget_entities() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE project_overviews p SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
     WHERE p.body IS NOT NULL
       AND EXISTS (SELECT FROM old_rows o
                    WHERE o.project_id = p.project_id AND o.type IN ('file', 'technology')
                      AND strpos(p.body, regexp_replace(o.name, '^.*/', '')) > 0);
    RETURN NULL;
END $$;
CREATE TRIGGER overviews_forget_entities AFTER DELETE ON entities REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION overviews_forget_entities();

ALTER TABLE project_overviews ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON project_overviews USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON project_overviews TO cmserver_tenant;
