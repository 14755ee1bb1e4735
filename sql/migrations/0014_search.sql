-- Search: names found as people type them, a language per project, prompts that are found like observations, and embeddings.
--
-- Why: the text search parser takes `getOrCreateSession` for one word and `src/auth/oauth.ts` for another, so neither is found by a part
-- of it. search_words() adds to the words of a text its names, whole and in parts, and is used for texts and queries alike. Texts that
-- are not English are stemmed by their own language, which a project says. The vector and its length are kept by a trigger from now on:
-- as generated columns each was computed by itself, and again for each row of a restored dump.
-- An embedding is a text's place among meanings. The row is there from the moment the observation is; it waits until `embedding` has a
-- value, so what waits can be counted. Without pgvector nothing is embedded, the column has a type that every PostgreSQL knows, and
-- the program makes it a halfvec at the first start that finds the extension.
-- The previous release keeps working: it searches the same column by the words that it knows.
-- How long: some eight minutes per million observations, whose words are looked up anew, and of prompts likewise; reading and writing
-- them waits meanwhile. Both tables need their own size again on the disk until they are vacuumed. Embeddings come after the start, by
-- the worker: ten thousand a second by the local model, at the rate of whoever else is asked.

ALTER TABLE projects ADD COLUMN search_language text NOT NULL DEFAULT 'english';
COMMENT ON COLUMN projects.search_language IS 'The text search configuration by which its texts and queries are stemmed; simple is none.';
ALTER TABLE observations ADD COLUMN search_language text NOT NULL DEFAULT 'english';
ALTER TABLE session_prompts ADD COLUMN search_language text NOT NULL DEFAULT 'english';
ALTER TABLE projects ADD CONSTRAINT projects_search_language_check CHECK (search_language IN (
    'simple', 'arabic', 'armenian', 'basque', 'catalan', 'danish', 'dutch', 'english', 'finnish', 'french', 'german', 'greek', 'hindi',
    'hungarian', 'indonesian', 'irish', 'italian', 'lithuanian', 'nepali', 'norwegian', 'portuguese', 'romanian', 'russian', 'serbian',
    'spanish', 'swedish', 'tamil', 'turkish', 'yiddish'));

-- A name is what no word of a language looks like: signs or a capital within, or a number behind letters and a hyphen, which the parser
-- takes for a negative one.
CREATE FUNCTION search_names(said text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT array_agg(found[1]) FROM regexp_matches(said,
    '[A-Za-z0-9_$]+(?:[./:_#@\\][A-Za-z0-9_$-]+)+|[A-Za-z0-9$]*[a-z0-9][A-Z][A-Za-z0-9$]*|[A-Za-z0-9]*[_$][A-Za-z0-9_$]*'
    '|[A-Za-z]+-[0-9]+', 'g') AS found
    WHERE length(found[1]) <= 400);

-- The words of a text as the language has them, and behind them its names: each whole, its parts that are names themselves (the file
-- of a path, a column of a table), a version without its v, and the words in it. The same for a query: whoever types a name as it is
-- shares the most with it.
CREATE FUNCTION search_words(language text, said text, with_names boolean DEFAULT true) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    config regconfig := 'pg_catalog.' || language;
    names  text[]    := CASE WHEN with_names THEN search_names(said) END;
    wholes tsvector;
BEGIN
    IF names IS NULL THEN
        RETURN to_tsvector(config, said);
    END IF;
    SELECT string_agg('''' || replace(replace(whole, '\', '\\'), '''', '''''') || ''':' || place, ' ')::tsvector
      INTO wholes
      FROM (SELECT lower(part) AS whole, row_number() OVER () AS place
              FROM unnest(names) AS name
             CROSS JOIN LATERAL (
                   SELECT name AS part
                    UNION
                   SELECT regexp_split_to_table(name, '[/\\:#@]+')
                    UNION
                   SELECT regexp_split_to_table(name, '[./\\:#@]+')
                    UNION
                   SELECT substr(name, 2) WHERE name ~* '^v[0-9]') AS parts
             WHERE part = name OR part ~ '[._$]|[a-z0-9][A-Z]') AS found
     WHERE whole <> '' AND place <= 16000;
    RETURN to_tsvector(config, said) || wholes
        || to_tsvector(config, regexp_replace(translate(array_to_string(names, ' '), './:_#@\$-', '         '),
                                              '([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])', '\1\3 \2\4', 'g'));
END $$;

ALTER TABLE observations ALTER COLUMN content_search DROP EXPRESSION, ALTER COLUMN content_words DROP EXPRESSION;
DROP FUNCTION observation_search_vector(text, text, text, text[], text[], text[], text[], text);

CREATE FUNCTION observation_words() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    files text := concat_ws(' ', array_to_string(NEW.files_read, ' '), array_to_string(NEW.files_modified, ' '));
    named boolean;
BEGIN
    -- A text without a title, and a summary, is its content; of all others the content only says the fields again. Where a tsvector
    -- has no room for the names, the words alone are in it: what could be stored before there were names can be stored.
    FOREACH named IN ARRAY '{true,false}'::boolean[] LOOP
        BEGIN
            NEW.content_search :=
                   setweight(search_words(NEW.search_language, coalesce(NEW.title, ''), named), 'A')
                || setweight(search_words(NEW.search_language, concat_ws(' ', NEW.subtitle, array_to_string(NEW.facts, ' ')),
                             named), 'B')
                || setweight(search_words(NEW.search_language, coalesce(NEW.narrative,
                             CASE WHEN NEW.title IS NULL OR NEW.summary IS NOT NULL THEN NEW.content END, ''), named), 'C')
                || setweight(search_words(NEW.search_language, concat_ws(' ', array_to_string(NEW.concepts, ' '), files,
                             replace(files, '/', ' ')), named), 'D');
            EXIT;
        EXCEPTION WHEN program_limit_exceeded THEN
            IF NOT named THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    NEW.content_words := tsvector_words(NEW.content_search);
    RETURN NEW;
END $$;
CREATE TRIGGER observations_words
    BEFORE INSERT OR UPDATE OF title, subtitle, narrative, facts, concepts, files_read, files_modified, summary, content, search_language
    ON observations FOR EACH ROW EXECUTE FUNCTION observation_words();
-- Room for counting accesses in place, without a touch of any index. And the words in the row itself and not packed: unpacking them took
-- more time than all the rest of a search.
ALTER TABLE observations SET (fillfactor = 90, toast_tuple_target = 8160);
UPDATE observations SET search_language = 'english';

ALTER TABLE session_prompts ALTER COLUMN text_search DROP EXPRESSION;
CREATE FUNCTION prompt_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        NEW.text_search := search_words(NEW.search_language, NEW.text);
    EXCEPTION WHEN program_limit_exceeded THEN
        NEW.text_search := search_words(NEW.search_language, NEW.text, false);
    END;
    RETURN NEW;
END $$;
CREATE TRIGGER session_prompts_words
    BEFORE INSERT OR UPDATE OF text, search_language ON session_prompts FOR EACH ROW EXECUTE FUNCTION prompt_words();
UPDATE session_prompts SET search_language = 'english';
CREATE OR REPLACE VIEW observations_in_team AS
    SELECT * FROM observations WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;
CREATE VIEW session_prompts_in_team AS
    SELECT * FROM session_prompts WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;
COMMENT ON VIEW session_prompts_in_team IS 'What search reads: the prompts of the team in cmserver.team_id, with their indexes usable.';
GRANT SELECT ON session_prompts_in_team TO cmserver_tenant;

-- Another language of a project: its texts get the words of it with the same transaction. Some half a millisecond each.
CREATE FUNCTION project_language() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE observations SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    UPDATE session_prompts SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;
CREATE TRIGGER projects_language AFTER UPDATE OF search_language ON projects
    FOR EACH ROW WHEN (OLD.search_language <> NEW.search_language) EXECUTE FUNCTION project_language();

-- What was asked around a moment, in all projects. The WHERE is true of every row: see 0008 about indexes beside those of references.
CREATE INDEX session_prompts_team ON session_prompts (team_id, created_at) WHERE created_at > '-infinity';

-- How often texts are read is counted from the audit log, by a job that remembers how far it is.
CREATE TABLE access_counting (
    only_one   boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    counted_to bigint NOT NULL DEFAULT 0,
    seen_to    bigint NOT NULL DEFAULT 0,
    seen_below xid8
);
COMMENT ON TABLE access_counting IS 'One row: up to which row of audit_log accesses are counted into observations.';
COMMENT ON COLUMN access_counting.seen_to IS 'Up to here all is counted next, when every transaction below seen_below is over.';

CREATE TABLE embedding_models (
    id            smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider      text NOT NULL,
    model         text NOT NULL,
    base_url      text,
    asked_dimensions integer,
    dimensions    integer CHECK (dimensions BETWEEN 1 AND 4000),
    state         text NOT NULL CHECK (state IN ('building', 'current', 'retired')),
    backfilled_to uuid,
    is_backfilled boolean NOT NULL DEFAULT false,
    created_at    timestamptz NOT NULL DEFAULT now(),
    switched_at   timestamptz
);
CREATE UNIQUE INDEX embedding_models_building ON embedding_models (state) WHERE state = 'building';
CREATE UNIQUE INDEX embedding_models_current ON embedding_models (state) WHERE state = 'current';
COMMENT ON TABLE embedding_models IS 'What embeds texts, of all teams: the model in use, and the one that takes its place when all is embedded.';
COMMENT ON COLUMN embedding_models.asked_dimensions IS 'How long its vectors shall be; NULL leaves it to the model.';
COMMENT ON COLUMN embedding_models.dimensions IS 'How long they are; NULL until the first answer of a model whose length only its server knows.';
COMMENT ON COLUMN embedding_models.backfilled_to IS
    'Down to which observation, by id, earlier ones have their rows in observation_embeddings; of a retired model: have none any more.';

CREATE TABLE observation_embeddings (
    observation_id uuid NOT NULL,
    model_id       smallint NOT NULL REFERENCES embedding_models (id),
    team_id        uuid NOT NULL,
    project_id     uuid NOT NULL,
    attempts       integer NOT NULL DEFAULT 0,
    next_at        timestamptz NOT NULL DEFAULT now(),
    last_error     text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    embedded_at    timestamptz,
    PRIMARY KEY (observation_id, model_id),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE
) WITH (toast_tuple_target = 8160); -- read by the thousand: in the row itself
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') THEN
        ALTER TABLE observation_embeddings ADD COLUMN embedding halfvec;
    ELSE
        ALTER TABLE observation_embeddings ADD COLUMN embedding real[];
    END IF;
END $$;
CREATE INDEX observation_embeddings_scope ON observation_embeddings (team_id, model_id, project_id) WHERE embedding IS NOT NULL;
CREATE INDEX observation_embeddings_waiting ON observation_embeddings (model_id, next_at) WHERE embedding IS NULL;
COMMENT ON TABLE observation_embeddings IS 'The place of each observation among meanings, by model. Without an embedding it waits for one.';
COMMENT ON COLUMN observation_embeddings.next_at IS
    'Not to be tried before; later after each failure, and while a worker has it in hand, who stores only what he finds it still to be.';
COMMENT ON COLUMN observation_embeddings.last_error IS 'The kind of the last failure. One that was given up has a next_at of infinity.';

-- Triggers, and not the statements of the program: whoever writes an observation, psql too, cannot forget it, and what he writes is
-- either there and waits, or not there at all. Without a model that is wanted there is nothing to wait for.
CREATE FUNCTION observations_wait_for_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id)
    SELECT n.id, m.id, n.team_id, n.project_id FROM new_ones n CROSS JOIN embedding_models m WHERE m.state <> 'retired'
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER observations_to_embed AFTER INSERT ON observations
    REFERENCING NEW TABLE AS new_ones FOR EACH STATEMENT EXECUTE FUNCTION observations_wait_for_embedding();

CREATE FUNCTION observation_waits_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE observation_embeddings
       SET embedding = NULL, embedded_at = NULL, attempts = 0, next_at = now(), last_error = NULL
     WHERE observation_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;
CREATE TRIGGER observations_to_embed_again
    AFTER UPDATE OF title, subtitle, narrative, facts, concepts, summary, content ON observations FOR EACH ROW
    WHEN ((OLD.title, OLD.subtitle, OLD.narrative, OLD.facts, OLD.concepts, OLD.summary, OLD.content)
          IS DISTINCT FROM (NEW.title, NEW.subtitle, NEW.narrative, NEW.facts, NEW.concepts, NEW.summary, NEW.content))
    EXECUTE FUNCTION observation_waits_again();

ALTER TABLE observation_embeddings ENABLE ROW LEVEL SECURITY;
-- The team is read once and not for each row: here they are compared by the ten thousand.
CREATE POLICY team ON observation_embeddings
    USING (team_id = (SELECT nullif(current_setting('cmserver.team_id', true), '')::uuid));
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_embeddings TO cmserver_tenant;
GRANT SELECT ON embedding_models TO cmserver_tenant;
