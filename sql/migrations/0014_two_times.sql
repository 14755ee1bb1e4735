-- What held and what was known at a time can be asked: what rows said before they changed is kept, and so are the texts of receipts
--
-- What a row says is known until now only as it is now, but for what people corrected or merged (observation_versions). Triggers
-- keep what a change takes the place of, in past_values: of a row only the columns that changed. The schema cmserver_past has the
-- tables that recall reads under their own names, as they were at the moment in cmserver.known_at, and of it what held at the one in
-- cmserver.as_of. A transaction that puts this schema first in its search_path reads the past with the statements of today. Nothing
-- that reads the present looks at any of it. What is erased takes its past along, and its lines in the texts of receipts.
--
-- How long: a second on a million rows; turn_ledger is written once.

CREATE TABLE past_values (
    id             bigint GENERATED ALWAYS AS IDENTITY,
    team_id        uuid NOT NULL,
    project_id     uuid NOT NULL,
    observation_id uuid,
    turn_id        uuid,
    kind           text NOT NULL CHECK (kind IN ('observation', 'turn', 'pointers', 'ledger', 'overview')),
    until          timestamptz NOT NULL DEFAULT now(),
    before         jsonb NOT NULL CHECK (jsonb_typeof(before) = 'object'),
    PRIMARY KEY (team_id, id),
    CHECK ((observation_id IS NOT NULL) = (kind = 'observation') AND (turn_id IS NOT NULL) = (kind IN ('turn', 'pointers', 'ledger'))),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX past_values_observation ON past_values (observation_id, project_id, team_id) WHERE observation_id IS NOT NULL;
CREATE INDEX past_values_turn ON past_values (turn_id, project_id, team_id) WHERE turn_id IS NOT NULL;
CREATE INDEX past_values_project ON past_values (project_id, team_id) WHERE observation_id IS NULL AND turn_id IS NULL;
CREATE INDEX past_values_later ON past_values ((before ->> 'later_id')) WHERE kind = 'ledger';
CREATE INDEX past_values_merged ON past_values USING gin ((before -> 'merged_from')) WHERE before ? 'merged_from';
COMMENT ON TABLE past_values IS 'What rows said before they changed, by which time travel reads them. It goes with its row.';
COMMENT ON COLUMN past_values.kind IS 'Of an observation, a turn, what its sentences pointed to, what was over of it, or the opening of a project''s page.';
COMMENT ON COLUMN past_values.until IS 'When the change was made.';
COMMENT ON COLUMN past_values.before IS 'The columns that changed, as they were.';
ALTER TABLE past_values ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON past_values USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON past_values TO cmserver_tenant;

-- ---- What changes take the place of

CREATE FUNCTION changed_values(old_row jsonb, new_row jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT jsonb_object_agg(o.key, o.value) FROM jsonb_each(old_row) o WHERE o.value IS DISTINCT FROM new_row -> o.key);

-- Counting an access, and writing the words of search anew, changes nothing that is said.
CREATE FUNCTION observation_keeps_past() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    unsaid text[] := '{content_search,content_words,access_count,last_accessed_at,updated_at,search_language,project_id,generation_key,'
        'created_by_job_id,server_session_id,quote_event_id,turn_number}';
    changed jsonb;
BEGIN
    OLD.content_search := NULL; -- large, and made of the others
    NEW.content_search := NULL;
    changed := changed_values(to_jsonb(OLD) - unsaid, to_jsonb(NEW) - unsaid);
    IF changed IS NOT NULL THEN
        INSERT INTO past_values (team_id, project_id, observation_id, kind, before)
        VALUES (NEW.team_id, NEW.project_id, NEW.id, 'observation', changed);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER observations_keep_past AFTER UPDATE OF scope, type, title, subtitle, narrative, facts, concepts, files_read,
    files_modified, summary, content, read_tokens, metadata, importance, anchors, state, closed_by, closed_at, ttl_seconds, expires_at,
    version, superseded_by, superseded_at, merged_from, caller_type, stale ON observations
    FOR EACH ROW EXECUTE FUNCTION observation_keeps_past();

-- Texts are long: only what has changed is read.
CREATE FUNCTION turn_keeps_past() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := '{}';
BEGIN
    IF NEW.prompt IS DISTINCT FROM OLD.prompt THEN
        before := before || jsonb_build_object('prompt', OLD.prompt);
    END IF;
    IF NEW.reply IS DISTINCT FROM OLD.reply THEN
        before := before || jsonb_build_object('reply', OLD.reply);
    END IF;
    IF NEW.files IS DISTINCT FROM OLD.files THEN
        before := before || jsonb_build_object('files', OLD.files);
    END IF;
    IF NEW.checks IS DISTINCT FROM OLD.checks THEN
        before := before || jsonb_build_object('checks', OLD.checks);
    END IF;
    IF NEW.commits IS DISTINCT FROM OLD.commits THEN
        before := before || jsonb_build_object('commits', OLD.commits);
    END IF;
    IF NEW.ended_at IS DISTINCT FROM OLD.ended_at THEN
        before := before || jsonb_build_object('ended_at', OLD.ended_at);
    END IF;
    IF NEW.own_line IS DISTINCT FROM OLD.own_line THEN
        before := before || jsonb_build_object('own_line', OLD.own_line);
    END IF;
    IF NEW.borrowed IS DISTINCT FROM OLD.borrowed THEN
        before := before || jsonb_build_object('borrowed', OLD.borrowed);
    END IF;
    INSERT INTO past_values (team_id, project_id, turn_id, kind, before)
    VALUES (NEW.team_id, NEW.project_id, NEW.id, 'turn', before);
    RETURN NULL;
END $$;
CREATE TRIGGER turns_keep_past AFTER UPDATE OF prompt, reply, files, checks, commits, ended_at, own_line, borrowed ON turns FOR EACH ROW
    WHEN ((OLD.prompt, OLD.reply, OLD.files, OLD.checks, OLD.commits, OLD.ended_at, OLD.own_line, OLD.borrowed)
          IS DISTINCT FROM (NEW.prompt, NEW.reply, NEW.files, NEW.checks, NEW.commits, NEW.ended_at, NEW.own_line, NEW.borrowed))
    EXECUTE FUNCTION turn_keeps_past();

-- What waits to be written anew has lost its text, and what it pointed to with it.
CREATE FUNCTION pointers_keep_past() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO past_values (team_id, project_id, turn_id, kind, before)
    VALUES (NEW.team_id, NEW.project_id, NEW.turn_id, 'pointers',
            jsonb_build_object('later_ids', OLD.later_ids, 'later_places', OLD.later_places, 'nearness', OLD.nearness));
    RETURN NULL;
END $$;
CREATE TRIGGER turn_sentences_keep_past AFTER UPDATE OF later_ids, later_places, nearness ON turn_sentences FOR EACH ROW
    WHEN (NEW.texts <> '{}' AND (OLD.later_ids, OLD.later_places, OLD.nearness)
          IS DISTINCT FROM (NEW.later_ids, NEW.later_places, NEW.nearness))
    EXECUTE FUNCTION pointers_keep_past();

ALTER TABLE turn_ledger ADD COLUMN recorded_at timestamptz NOT NULL DEFAULT now();
COMMENT ON COLUMN turn_ledger.recorded_at IS 'When it was noted; of what was noted before this column was there, when the later turn ended.';
UPDATE turn_ledger l SET recorded_at = coalesce(n.ended_at, n.created_at) FROM turns n WHERE n.id = l.later_id;

CREATE FUNCTION ledger_keeps_past() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- What goes with either turn leaves nothing.
    INSERT INTO past_values (team_id, project_id, turn_id, kind, before)
    SELECT t.team_id, t.project_id, t.id, 'ledger', to_jsonb(OLD) - '{team_id,earlier_id,earlier_project_id}'::text[]
      FROM turns t JOIN turns n ON n.id = OLD.later_id AND n.team_id = t.team_id
     WHERE t.id = OLD.earlier_id AND t.team_id = OLD.team_id;
    IF TG_OP = 'UPDATE' THEN
        NEW.recorded_at := now();
        RETURN NEW;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER turn_ledger_keeps_past BEFORE UPDATE OF later_id, instead ON turn_ledger FOR EACH ROW
    WHEN ((OLD.later_id, OLD.instead) IS DISTINCT FROM (NEW.later_id, NEW.instead)) EXECUTE FUNCTION ledger_keeps_past();
CREATE TRIGGER turn_ledger_keeps_deleted BEFORE DELETE ON turn_ledger FOR EACH ROW EXECUTE FUNCTION ledger_keeps_past();

-- A page that is emptied says what was deleted, changed or moved: that is not kept.
CREATE FUNCTION overview_keeps_past() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO past_values (team_id, project_id, kind, before)
    VALUES (OLD.team_id, OLD.project_id, 'overview',
            jsonb_build_object('opening', OLD.opening, 'numbers', OLD.numbers, 'made_at', OLD.made_at));
    RETURN NULL;
END $$;
CREATE TRIGGER project_overviews_keep_past AFTER UPDATE OF opening ON project_overviews FOR EACH ROW
    WHEN (OLD.made_at IS NOT NULL AND NEW.made_at IS NOT NULL AND OLD.opening IS DISTINCT FROM NEW.opening)
    EXECUTE FUNCTION overview_keeps_past();

-- ---- The texts of receipts

ALTER TABLE context_injections ADD COLUMN text text;
ALTER TABLE context_injections ADD COLUMN text_hash bytea;
ALTER TABLE context_injections ADD COLUMN told bigint[] NOT NULL DEFAULT '{}';
GRANT UPDATE ON context_injections TO cmserver_tenant;
COMMENT ON TABLE context_injections IS 'Receipts: what of the memory was shown to which session, why, how many tokens it cost, and the text itself.';
COMMENT ON COLUMN context_injections.text IS 'What the session was told, but for what is its person''s alone. NULL before it was kept. What is erased is cut out of it.';
COMMENT ON COLUMN context_injections.text_hash IS 'The SHA-256 of the text, in UTF-8, as it stands here.';
COMMENT ON COLUMN context_injections.told IS 'All observations and turns of which the text says something.';

-- The lines that name one of the numbers, alone or in `#5 to #9:`, and what stands below them; the newest summary to its end. Lines
-- without a number say what was taken from several: the first ones, and what runs.
CREATE FUNCTION cut_out(told text, gone bigint[]) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    line text;
    kept text[] := '{}';
    is_cut boolean := false;
    is_opening boolean := strpos(told, E'\nA line is #number') > 0;
    place integer := 0;
BEGIN
    FOREACH line IN ARRAY string_to_array(told, E'\n') LOOP
        place := place + 1;
        IF starts_with(line, 'A line is #number') THEN
            is_opening := false;
            is_cut := false;
        ELSIF is_opening THEN
            is_cut := place > 2;
        ELSIF line ~ '^(Another session is at work here now|This turn so far)' THEN
            is_cut := true;
        ELSIF line ~ '#[0-9]' AND NOT (is_cut AND starts_with(line, '  ')) THEN
            is_cut := EXISTS (SELECT FROM regexp_matches(line, '#([0-9]{1,18})', 'g') m WHERE m[1]::bigint = ANY(gone))
                   OR EXISTS (SELECT FROM regexp_matches(line, '#([0-9]{1,18}) to #([0-9]{1,18})', 'g') m, unnest(gone) g
                               WHERE g BETWEEN m[1]::bigint AND m[2]::bigint);
        ELSIF line = '' OR starts_with(line, '<') OR line ~ '^\d{4}-\d\d-\d\d' OR line ~ '^(One is read whole|In .*, changed on)' THEN
            is_cut := false;
        END IF;
        IF NOT is_cut THEN
            kept := kept || line;
        ELSIF coalesce(kept[cardinality(kept)], '') <> '(erased)' THEN
            kept := kept || '(erased)'::text;
        END IF;
    END LOOP;
    RETURN array_to_string(kept, E'\n');
END $$;
COMMENT ON FUNCTION cut_out IS 'The text of a receipt without what it says of these numbers.';

CREATE FUNCTION past_forgets_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    team uuid;
    gone bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM old_rows) THEN
        RETURN NULL;
    END IF;
    -- Also a page of the project in which it was before.
    DELETE FROM past_values p USING old_rows o
     WHERE p.team_id = o.team_id AND p.observation_id IS NULL AND p.turn_id IS NULL
       AND p.before -> 'numbers' @> to_jsonb(o.number);
    IF TG_TABLE_NAME = 'turns' THEN
        DELETE FROM past_values p USING old_rows o
         WHERE p.kind = 'ledger' AND p.before ->> 'later_id' = o.id::text AND p.team_id = o.team_id;
        -- What ran has no number: the lines are cut of whatever was told while the turn was under way, by any clock.
        UPDATE context_injections c
           SET text = cut_out(c.text, '{}'), text_hash = sha256(convert_to(cut_out(c.text, '{}'), 'UTF8'))
          FROM (SELECT p.id, p.team_id, min(to_jsonb(o) ->> 'created_at')::timestamptz - interval '1 day' AS since,
                       max(coalesce(to_jsonb(o) ->> 'ended_at', 'infinity'))::timestamptz + interval '1 day' AS until
                  FROM old_rows o JOIN projects p ON p.team_id = o.team_id GROUP BY p.id, p.team_id) r
         WHERE c.project_id = r.id AND c.team_id = r.team_id AND c.created_at BETWEEN r.since AND r.until
           AND c.text ~ '\n(Another session is at work here now|This turn so far)';
    END IF;
    IF TG_TABLE_NAME = 'observations' THEN
        -- What it was merged into said its words until the merge was undone.
        DELETE FROM past_values p USING past_values m, old_rows o
         WHERE m.before ? 'merged_from' AND m.before -> 'merged_from' ? o.id::text AND m.team_id = o.team_id
           AND p.observation_id = m.observation_id AND p.team_id = m.team_id;
    END IF;
    FOR team, gone IN
        SELECT o.team_id, array_agg(o.number) FROM old_rows o GROUP BY o.team_id
    LOOP
        IF TG_TABLE_NAME = 'turns' THEN
            -- The words of a sub-agent stand in the line of the turn that started it.
            gone := gone || ARRAY(SELECT t.number FROM turns t
                                   WHERE t.team_id = team AND t.server_session_id IN (
                                         SELECT (to_jsonb(o) ->> 'server_session_id')::uuid FROM old_rows o
                                          WHERE o.team_id = team AND to_jsonb(o) ->> 'agent_id' IS NOT NULL));
        END IF;
        UPDATE context_injections c
           SET text = cut_out(c.text, gone), text_hash = sha256(convert_to(cut_out(c.text, gone), 'UTF8'))
          FROM projects p
         WHERE p.team_id = team AND c.project_id = p.id AND c.team_id = team AND c.created_at > '-infinity'
           AND c.told && gone AND c.text IS NOT NULL;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER past_forgets_deleted AFTER DELETE ON observations REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION past_forgets_deleted();
CREATE TRIGGER past_forgets_deleted AFTER DELETE ON turns REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION past_forgets_deleted();

-- Openings have names of entities, too. Before the page is emptied: what no opening said, no receipt says in one.
CREATE FUNCTION past_forgets_entities() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    gone record;
BEGIN
    FOR gone IN
        SELECT n.project_id, n.team_id, n.name
          FROM (SELECT DISTINCT o.project_id, o.team_id, regexp_replace(o.name, '^.*/', '') AS name
                  FROM old_rows o WHERE o.type IN ('file', 'technology')) n
         WHERE EXISTS (SELECT FROM project_overviews v
                        WHERE v.project_id = n.project_id AND v.team_id = n.team_id
                          AND strpos(array_to_string(v.opening, E'\n'), n.name) > 0)
            OR EXISTS (SELECT FROM past_values p, jsonb_array_elements_text(p.before -> 'opening') line
                        WHERE p.project_id = n.project_id AND p.team_id = n.team_id AND p.observation_id IS NULL
                          AND p.turn_id IS NULL AND strpos(line, n.name) > 0)
    LOOP
        DELETE FROM past_values p
         WHERE p.project_id = gone.project_id AND p.team_id = gone.team_id AND p.observation_id IS NULL AND p.turn_id IS NULL
           AND EXISTS (SELECT FROM jsonb_array_elements_text(p.before -> 'opening') line WHERE strpos(line, gone.name) > 0);
        UPDATE context_injections c
           SET text = cut_out(c.text, '{}'), text_hash = sha256(convert_to(cut_out(c.text, '{}'), 'UTF8'))
         WHERE c.project_id = gone.project_id AND c.team_id = gone.team_id AND c.created_at > '-infinity'
           AND strpos(c.text, gone.name) > 0;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_past_of_entities AFTER DELETE ON entities REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION past_forgets_entities();

CREATE FUNCTION past_forgets_overviews() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM past_values p
     WHERE p.project_id = OLD.project_id AND p.team_id = OLD.team_id AND p.observation_id IS NULL AND p.turn_id IS NULL
       AND (TG_TABLE_NAME = 'project_overviews' OR p.before -> 'numbers' @> (to_jsonb(OLD) -> 'number'));
    RETURN NULL;
END $$;
CREATE TRIGGER past_forgets_overviews AFTER DELETE ON project_overviews
    FOR EACH ROW EXECUTE FUNCTION past_forgets_overviews();
CREATE TRIGGER past_forgets_moved AFTER UPDATE OF project_id ON observations FOR EACH ROW
    WHEN (OLD.project_id IS DISTINCT FROM NEW.project_id) EXECUTE FUNCTION past_forgets_overviews();
CREATE TRIGGER past_forgets_moved AFTER UPDATE OF project_id ON turns FOR EACH ROW
    WHEN (OLD.project_id IS DISTINCT FROM NEW.project_id) EXECUTE FUNCTION past_forgets_overviews();

-- As it was, and it takes marks of the session's edits from the past of other sessions' observations, too.
CREATE OR REPLACE FUNCTION erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = gone AND team_id = team);
    merged bigint[];
    counts jsonb;
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving VALUES (gone);
    merged := gather_moving(held, team, true);
    counts := jsonb_build_object(
        'observations', (SELECT count(*) FROM observations
                          WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)),
        'vectors', (SELECT count(*) FROM observation_embeddings
                     WHERE project_id = held AND team_id = team
                       AND (observation_id IN (SELECT id FROM moving)
                            OR turn_id IN (SELECT id FROM turns WHERE server_session_id = gone AND team_id = team))),
        'turns', (SELECT count(*) FROM turns WHERE server_session_id = gone AND team_id = team),
        'events', (SELECT count(*) FROM agent_events WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)),
        'jobs', (SELECT count(*) FROM observation_generation_jobs
                  WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)),
        'runs', (SELECT count(*) FROM generation_runs
                  WHERE project_id = held AND team_id = team AND lane IN (SELECT id FROM moving)),
        'receipts', (SELECT count(*) FROM context_injections
                      WHERE project_id = held AND team_id = team AND server_session_id = gone),
        'merged', coalesce(to_jsonb(merged), '[]'));
    IF NOT only_count AND (merged IS NULL OR with_merged) THEN
        PERFORM forget_sources(ARRAY(SELECT id FROM moving), team);
        UPDATE observations SET stale = NULL
         WHERE project_id = held AND team_id = team AND stale IS NOT NULL
           AND stale ->> 'eventId' IN (SELECT id::text FROM moving);
        UPDATE observation_versions SET before = before - 'stale'
         WHERE project_id = held AND team_id = team AND before -> 'stale' ->> 'eventId' IN (SELECT id::text FROM moving);
        UPDATE past_values SET before = before - 'stale'
         WHERE team_id = team AND before -> 'stale' ->> 'eventId' IN (SELECT id::text FROM moving);
        DELETE FROM context_injections WHERE project_id = held AND team_id = team AND server_session_id = gone;
        DELETE FROM observations
         WHERE project_id = held AND team_id = team
           AND (id IN (SELECT id FROM moving)
                OR id IN (SELECT superseded_by FROM observations
                           WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)));
        DELETE FROM turns WHERE server_session_id = gone AND team_id = team;
        DELETE FROM observation_generation_jobs WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving);
        DELETE FROM agent_events WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving);
        DELETE FROM server_sessions WHERE id = gone AND team_id = team;
        DELETE FROM generation_runs WHERE project_id = held AND team_id = team AND lane IN (SELECT id FROM moving);
        DELETE FROM generation_lanes WHERE team_id = team AND lane IN (SELECT id FROM moving);
    END IF;
    DROP TABLE moving;
    RETURN counts;
END $$;

-- ---- The past, under the names of the present

CREATE FUNCTION recorded_at(id uuid, created_at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN substr(id::text, 15, 1) = '7'
                THEN to_timestamp((('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint
                                   + ('x' || substr(id::text, 16, 3))::bit(12)::integer / 4096.0) / 1000.0) ELSE created_at END;
COMMENT ON FUNCTION recorded_at IS 'When the row of this id was written: an id of version 7 says it. created_at is when it was said.';

CREATE SCHEMA cmserver_past;
GRANT USAGE ON SCHEMA cmserver_past TO cmserver_tenant;

CREATE FUNCTION cmserver_past.known_at() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce(nullif(current_setting('cmserver.known_at', true), '')::timestamptz, 'infinity');
CREATE FUNCTION cmserver_past.held_at() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    RETURN coalesce(nullif(current_setting('cmserver.as_of', true), '')::timestamptz, 'infinity');
CREATE FUNCTION cmserver_past.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    RETURN least(cmserver_past.known_at(), cmserver_past.held_at(), pg_catalog.now());

-- What a person's word, a merge or a mark ended is out from then on; what a turn closed, from that turn on. Who may read a row goes
-- by today: what was shared and is no more is told to no other project.
CREATE VIEW cmserver_past.observations WITH (security_invoker = true) AS
    SELECT o.id, o.number, o.project_id, o.team_id, o.server_session_id,
           CASE WHEN o.scope = 'team' THEN r.scope ELSE o.scope END AS scope, o.kind, r.type, o.origin, r.title, r.subtitle,
           r.narrative, r.facts, r.concepts, r.files_read, r.files_modified, r.summary, o.prompt_number, r.content,
           w.content_search,
           CASE WHEN w.is_anew THEN tsvector_words(w.content_search) ELSE o.content_words END AS content_words,
           r.read_tokens, o.discovery_tokens, o.access_count, o.last_accessed_at, o.generation_key, r.metadata,
           o.created_by_job_id, o.created_at, o.updated_at, o.search_language, r.importance, r.quote, o.quote_event_id, r.anchors,
           r.state, r.closed_by, r.closed_at, r.ttl_seconds, r.expires_at, r.version, r.superseded_by, r.superseded_at, r.merged_from,
           r.agent, r.caller_type, r.stale, o.actor_id, o.turn_number,
           greatest(o.created_at, (SELECT max(c.until) FROM past_values c
                                    WHERE c.observation_id = o.id AND c.team_id = o.team_id AND c.until <= m.moment
                                      AND c.before ?| '{title,subtitle,narrative,facts,content}')) AS valid_from,
           least((SELECT min(c.until) FROM past_values c
                   WHERE c.observation_id = o.id AND c.team_id = o.team_id AND c.until > m.moment
                     AND c.before ?| '{title,subtitle,narrative,facts,content}'),
                 o.superseded_at, o.expires_at, e.closed_at,
                 to_timestamp((o.stale ->> 'markedAtEpoch')::bigint / 1000.0)) AS valid_to
      FROM observations o
     CROSS JOIN LATERAL (SELECT cmserver_past.known_at() AS known, cmserver_past.held_at() AS held,
                                least(cmserver_past.known_at(), cmserver_past.held_at()) AS moment) m
     CROSS JOIN LATERAL (SELECT jsonb_object_agg(v.key, v.value ORDER BY b.until DESC, b.id DESC) AS before
                           FROM past_values b CROSS JOIN LATERAL jsonb_each(b.before) v
                          WHERE b.observation_id = o.id AND b.team_id = o.team_id AND b.until > m.moment) p
     CROSS JOIN LATERAL jsonb_populate_record(o, p.before) r
     CROSS JOIN LATERAL (SELECT p.before ?| '{title,subtitle,narrative,facts,concepts,files_read,files_modified,summary,content}' AS is_anew,
           CASE WHEN p.before ?| '{title,subtitle,narrative,facts,concepts,files_read,files_modified,summary,content}' THEN
                setweight(search_words(o.search_language, coalesce(r.title, '')), 'A')
                || setweight(search_words(o.search_language, concat_ws(' ', r.subtitle, array_to_string(r.facts, ' '))), 'B')
                || setweight(search_words(o.search_language, coalesce(r.narrative,
                             CASE WHEN r.title IS NULL OR r.summary IS NOT NULL THEN r.content END, '')), 'C')
                || setweight(search_words(o.search_language, concat_ws(' ', array_to_string(r.concepts, ' '),
                             array_to_string(r.files_read, ' '), array_to_string(r.files_modified, ' '),
                             replace(concat_ws(' ', array_to_string(r.files_read, ' '), array_to_string(r.files_modified, ' ')),
                                     '/', ' '))), 'D')
                ELSE o.content_search END AS content_search) w
     CROSS JOIN LATERAL (SELECT CASE WHEN o.state IN ('done', 'dropped')
                                     THEN coalesce((SELECT t.created_at FROM turns t
                                                     WHERE t.team_id = o.team_id AND t.number = o.closed_by), o.closed_at) END
                                AS closed_at) e
     WHERE o.created_at <= m.held AND recorded_at(o.id, o.created_at) <= m.known
       AND (m.held = 'infinity'
            OR (r.state IS DISTINCT FROM 'done' AND r.state IS DISTINCT FROM 'dropped' AND r.stale IS NULL
                AND (e.closed_at IS NULL OR o.closed_by IS NULL OR e.closed_at > m.held)));
COMMENT ON VIEW cmserver_past.observations IS 'What observations said at a moment. A new column of the table is added to it by name.';

CREATE VIEW cmserver_past.observations_in_team WITH (security_invoker = true) AS
    SELECT * FROM cmserver_past.observations
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
       AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > cmserver_past.now());

-- Of a turn that had not ended nobody had the answer.
CREATE VIEW cmserver_past.turns WITH (security_invoker = true) AS
    SELECT t.id, t.team_id, t.project_id, t.server_session_id, t.agent_event_id, t.prompt_number, r.prompt,
           CASE WHEN p.before ?| '{prompt,reply,files,commits}' OR a.is_running THEN
                search_words(t.search_language, r.prompt) || search_words(t.search_language, coalesce(a.reply, ''))
                || search_words(t.search_language, array_to_string(a.files || a.commits, ' '))
                ELSE t.text_search END AS text_search,
           t.created_at, t.search_language, t.number, a.reply, t.actor_id, a.files, a.checks, a.commits, a.ended_at, t.agent_id,
           r.own_line, r.borrowed
      FROM turns t
     CROSS JOIN LATERAL (SELECT cmserver_past.known_at() AS known, cmserver_past.held_at() AS held) m
     CROSS JOIN LATERAL (SELECT jsonb_object_agg(v.key, v.value ORDER BY b.until DESC, b.id DESC) AS before
                           FROM past_values b CROSS JOIN LATERAL jsonb_each(b.before) v
                          WHERE b.turn_id = t.id AND b.team_id = t.team_id AND b.kind = 'turn' AND b.until > m.known) p
     CROSS JOIN LATERAL jsonb_populate_record(t, p.before) r
     CROSS JOIN LATERAL (SELECT coalesce(r.ended_at > m.held, false) AS is_running) x
     CROSS JOIN LATERAL (SELECT x.is_running, CASE WHEN NOT x.is_running THEN r.reply END AS reply,
                                CASE WHEN x.is_running THEN '{}' ELSE r.files END AS files,
                                CASE WHEN x.is_running THEN '{}' ELSE r.checks END AS checks,
                                CASE WHEN x.is_running THEN '{}' ELSE r.commits END AS commits,
                                CASE WHEN NOT x.is_running THEN r.ended_at END AS ended_at) a
     WHERE t.created_at <= m.held AND recorded_at(t.id, t.created_at) <= m.known;

CREATE VIEW cmserver_past.turns_in_team WITH (security_invoker = true) AS
    SELECT id, team_id, project_id, server_session_id, agent_event_id, prompt_number, prompt, text_search, created_at,
           search_language, number, reply, actor_id, files, checks, commits, ended_at, agent_id
      FROM cmserver_past.turns
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;

CREATE VIEW cmserver_past.turn_ledger WITH (security_invoker = true) AS
    SELECT l.team_id, l.earlier_id, l.earlier_project_id, l.later_id, l.later_project_id, l.kind, l.name, l.token, l.instead,
           l.recorded_at
      FROM turn_ledger l WHERE l.recorded_at <= cmserver_past.known_at()
     UNION ALL
    SELECT p.team_id, p.turn_id, p.project_id, (p.before ->> 'later_id')::uuid, (p.before ->> 'later_project_id')::uuid,
           p.before ->> 'kind', p.before ->> 'name', (p.before ->> 'token')::integer,
           ARRAY(SELECT i::integer FROM jsonb_array_elements_text(p.before -> 'instead') i),
           (p.before ->> 'recorded_at')::timestamptz
      FROM past_values p
     WHERE p.kind = 'ledger' AND p.until > cmserver_past.known_at()
       AND (p.before ->> 'recorded_at')::timestamptz <= cmserver_past.known_at();

-- Sentences are written when the turn has ended.
CREATE VIEW cmserver_past.turn_sentences WITH (security_invoker = true) AS
    SELECT s.turn_id, s.team_id, s.project_id, s.due_at, s.texts, s.of_user, s.words, s.model_id, s.vectors, r.later_ids,
           r.later_places, r.nearness
      FROM turn_sentences s
     CROSS JOIN LATERAL (SELECT (SELECT b.before FROM past_values b
                                  WHERE b.turn_id = s.turn_id AND b.team_id = s.team_id AND b.kind = 'pointers'
                                    AND b.until > cmserver_past.known_at()
                                  ORDER BY b.until, b.id LIMIT 1) AS before) p
     CROSS JOIN LATERAL jsonb_populate_record(s, p.before) r
     WHERE EXISTS (SELECT FROM cmserver_past.turns t WHERE t.id = s.turn_id AND t.ended_at IS NOT NULL);

CREATE VIEW cmserver_past.project_overviews WITH (security_invoker = true) AS
    SELECT v.id, v.project_id, v.team_id, coalesce(v.body, '') AS body, r.opening, r.numbers, v.made_by, v.summary_count,
           v.new_summaries, r.made_at
      FROM project_overviews v
     CROSS JOIN LATERAL (SELECT (SELECT b.before FROM past_values b
                                  WHERE b.project_id = v.project_id AND b.team_id = v.team_id AND b.kind = 'overview'
                                    AND b.until > cmserver_past.now()
                                  ORDER BY b.until, b.id LIMIT 1) AS before) p
     CROSS JOIN LATERAL jsonb_populate_record(v, p.before) r
     WHERE r.made_at <= cmserver_past.now();

CREATE VIEW cmserver_past.context_injections WITH (security_invoker = true) AS
    SELECT id, team_id, project_id, server_session_id, reason, platform_source, numbers, summary_numbers, left_out, left_out_count,
           tokens, budget_tokens, chars, details, created_at, text, text_hash, told
      FROM context_injections WHERE created_at <= cmserver_past.now();

CREATE VIEW cmserver_past.agent_events WITH (security_invoker = true) AS
    SELECT id, project_id, team_id, server_session_id, source_adapter, source_event_id, idempotency_key, event_type, platform_source,
           origin, generate, size_chars, payload, metadata, occurred_at, received_at, created_at, payload_purged_at
      FROM agent_events WHERE received_at <= cmserver_past.known_at() AND occurred_at <= cmserver_past.held_at();

CREATE VIEW cmserver_past.observation_counters WITH (security_invoker = true) AS
    SELECT c.team_id,
           greatest((SELECT max(o.number) FROM cmserver_past.observations o WHERE o.team_id = c.team_id),
                    (SELECT max(t.number) FROM cmserver_past.turns t WHERE t.team_id = c.team_id), 0) AS last_number,
           (SELECT count(*) FROM cmserver_past.turns t WHERE t.team_id = c.team_id) AS turns
      FROM observation_counters c;

GRANT SELECT ON ALL TABLES IN SCHEMA cmserver_past TO cmserver_tenant;

-- ---- One matter, one current statement
--
-- Where people chose it: the matter stands in the metadata, which versions, exports and joins carry. What arrives or comes back where
-- another one is current by then is not.

CREATE UNIQUE INDEX observations_current ON observations (project_id, md5(lower(metadata ->> 'currentOn')))
    WHERE metadata ? 'currentOn' AND superseded_at IS NULL AND state IS DISTINCT FROM 'dropped';
CREATE FUNCTION one_statement_is_current() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM observations o
                WHERE o.project_id = NEW.project_id AND o.id <> NEW.id
                  AND md5(lower(o.metadata ->> 'currentOn')) = md5(lower(NEW.metadata ->> 'currentOn'))
                  AND o.metadata ? 'currentOn' AND o.superseded_at IS NULL AND o.state IS DISTINCT FROM 'dropped') THEN
        NEW.metadata := NEW.metadata - 'currentOn';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER one_statement_is_current BEFORE INSERT OR UPDATE OF project_id, superseded_at ON observations FOR EACH ROW
    WHEN (NEW.metadata ? 'currentOn' AND NEW.superseded_at IS NULL) EXECUTE FUNCTION one_statement_is_current();

-- ---- For psql

CREATE FUNCTION observations_at(held timestamptz, known timestamptz) RETURNS SETOF cmserver_past.observations LANGUAGE plpgsql AS $$
DECLARE
    held_before text := coalesce(current_setting('cmserver.as_of', true), '');
    known_before text := coalesce(current_setting('cmserver.known_at', true), '');
BEGIN
    PERFORM set_config('cmserver.as_of', held::text, true), set_config('cmserver.known_at', known::text, true);
    RETURN QUERY SELECT o.* FROM cmserver_past.observations o
                  WHERE o.superseded_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > cmserver_past.now());
    PERFORM set_config('cmserver.as_of', held_before, true), set_config('cmserver.known_at', known_before, true);
END $$;
COMMENT ON FUNCTION observations_at IS 'What held at the first moment, by what was known at the second: observations_at(''2026-03-01Z'', ''infinity'').';
CREATE FUNCTION observations_as_of(t timestamptz) RETURNS SETOF cmserver_past.observations LANGUAGE sql
    BEGIN ATOMIC SELECT * FROM observations_at(t, 'infinity'); END;
COMMENT ON FUNCTION observations_as_of IS 'The observations that held at the moment, with valid_from and valid_to, by what is known now.';
CREATE FUNCTION observations_known_at(t timestamptz) RETURNS SETOF cmserver_past.observations LANGUAGE sql
    BEGIN ATOMIC SELECT * FROM observations_at('infinity', t); END;
COMMENT ON FUNCTION observations_known_at IS 'The observations as they were known at the moment: what would have been shown then.';

-- ---- What somebody gave a team stays, under another name, as before; receipts that name them keep their numbers alone
CREATE OR REPLACE FUNCTION rename_actor(team uuid, names text[], new_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE server_sessions SET actor_id = new_name WHERE team_id = team AND actor_id = ANY(names);
    UPDATE turns SET actor_id = new_name WHERE team_id = team AND actor_id = ANY(names);
    UPDATE observations SET actor_id = new_name WHERE team_id = team AND actor_id = ANY(names);
    UPDATE observation_versions SET performed_by = new_name WHERE team_id = team AND performed_by = ANY(names);
    UPDATE observation_generation_jobs SET actor_id = new_name WHERE team_id = team AND actor_id = ANY(names);
    UPDATE consolidation_suggestions SET resolved_by = new_name WHERE team_id = team AND resolved_by = ANY(names);
    UPDATE context_injections c SET text = NULL, text_hash = NULL
     WHERE c.team_id = team AND EXISTS (SELECT FROM unnest(names) n WHERE strpos(c.text, n) > 0);
END $$;
