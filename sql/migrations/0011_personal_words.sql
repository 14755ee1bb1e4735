-- A backup that holds what is a person's alone can be restored: its words are written by a trigger, as those of turns are
--
-- A column that is generated is generated anew when a backup is read, and there the functions that it calls are not found.
--
-- How long: milliseconds; no row is read.

ALTER TABLE personal_observations ALTER COLUMN content_search DROP EXPRESSION;

CREATE FUNCTION personal_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.content_search := search_words(NEW.search_language, NEW.content, false);
    RETURN NEW;
END $$;
CREATE TRIGGER personal_observations_words
    BEFORE INSERT OR UPDATE OF content, search_language ON personal_observations FOR EACH ROW EXECUTE FUNCTION personal_words();
