-- What was taken away is told of no other time: not by the text of a receipt, and not by what was known then
--
-- The text of a receipt is cut whatever numbers the words in it have. What somebody took from the team for themselves is marked, so that
-- the past does not tell it either.
--
-- How long: milliseconds; no row is read.

-- ---- The texts of receipts

-- The lines that name one of the numbers, alone or in `#5 to #9:`, and what stands below them until another line begins with its own
-- number; the newest summary to its end, whatever its words name. Lines without a number say what was taken from several: the first
-- ones, and what runs.
CREATE OR REPLACE FUNCTION cut_out(told text, gone bigint[]) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    line text;
    kept text[] := '{}';
    is_cut boolean := false;
    is_summary boolean := false;
    is_opening boolean := strpos(told, E'\nA line is #number') > 0;
    place integer := 0;
BEGIN
    FOREACH line IN ARRAY string_to_array(told, E'\n') LOOP
        place := place + 1;
        is_summary := line <> '' AND NOT starts_with(line, '<') AND (is_summary OR line ~ '^Newest summary, #[0-9]');
        IF starts_with(line, 'A line is #number') THEN
            is_opening := false;
            is_cut := false;
        ELSIF is_opening THEN
            is_cut := place > 2;
        ELSIF line ~ '^(Another session is at work here now|This turn so far)' THEN
            is_cut := true;
        ELSIF EXISTS (SELECT FROM regexp_matches(line, '#([0-9]{1,18})', 'g') m WHERE m[1]::bigint = ANY(gone))
           OR EXISTS (SELECT FROM regexp_matches(line, '#([0-9]{1,18}) to #([0-9]{1,18})', 'g') m, unnest(gone) g
                       WHERE g BETWEEN m[1]::bigint AND m[2]::bigint) THEN
            is_cut := true;
        ELSIF is_summary THEN
            is_cut := is_cut AND NOT starts_with(line, 'Newest summary, #');
        ELSIF line = '' OR line ~ '^(<|#[0-9]|\d{4}-\d\d-\d\d|One is read whole|In .*, changed on)' THEN
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

CREATE FUNCTION cut_receipts(team uuid, ids uuid[], gone bigint[]) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    WITH cut AS MATERIALIZED (
        SELECT id, cut_out(text, gone) AS text FROM context_injections WHERE id = ANY(ids) AND team_id = team AND text IS NOT NULL)
    UPDATE context_injections c SET text = cut.text, text_hash = sha256(convert_to(cut.text, 'UTF8'))
      FROM cut WHERE c.id = cut.id AND c.team_id = team;
END;
COMMENT ON FUNCTION cut_receipts IS 'Leaves out of the texts of these receipts what they say of these numbers, and what has none.';

-- ---- What somebody took for themselves

ALTER TABLE observations ADD COLUMN taken_at timestamptz;
COMMENT ON COLUMN observations.taken_at IS 'When its person took it from the team, which is told of it at no time from then on. NULL for all else.';

-- Counting an access, and writing the words of search anew, changes nothing that is said.
CREATE OR REPLACE FUNCTION observation_keeps_past() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    unsaid text[] := '{content_search,content_words,access_count,last_accessed_at,updated_at,search_language,project_id,generation_key,'
        'created_by_job_id,server_session_id,quote_event_id,turn_number,taken_at}';
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

-- What was merged into it says its words, too. What is shown again is nobody's own any more.
CREATE FUNCTION observation_is_shown_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.taken_at := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER observation_is_shown_again BEFORE UPDATE OF expires_at ON observations FOR EACH ROW
    WHEN (OLD.taken_at IS NOT NULL AND NEW.expires_at IS NULL) EXECUTE FUNCTION observation_is_shown_again();
CREATE FUNCTION observation_is_taken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE observations SET taken_at = NEW.taken_at WHERE superseded_by = NEW.id AND team_id = NEW.team_id;
    IF NEW.taken_at IS NOT NULL THEN
        PERFORM cut_receipts(NEW.team_id, ARRAY(SELECT id FROM context_injections
                                                 WHERE team_id = NEW.team_id AND told @> ARRAY[NEW.number] AND text IS NOT NULL),
                             ARRAY[NEW.number]);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER observation_is_taken AFTER UPDATE OF taken_at, expires_at ON observations FOR EACH ROW
    WHEN (OLD.taken_at IS DISTINCT FROM NEW.taken_at) EXECUTE FUNCTION observation_is_taken();
CREATE TRIGGER overviews_forget_taken AFTER UPDATE OF taken_at ON observations FOR EACH ROW
    WHEN (OLD.taken_at IS NULL AND NEW.taken_at IS NOT NULL) EXECUTE FUNCTION overviews_forget_changed();
CREATE TRIGGER past_forgets_taken AFTER UPDATE OF taken_at ON observations FOR EACH ROW
    WHEN (OLD.taken_at IS NULL AND NEW.taken_at IS NOT NULL) EXECUTE FUNCTION past_forgets_overviews();

CREATE OR REPLACE VIEW cmserver_past.observations WITH (security_invoker = true) AS
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
                 to_timestamp((o.stale ->> 'markedAtEpoch')::bigint / 1000.0)) AS valid_to, o.taken_at
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
     WHERE o.taken_at IS NULL AND o.created_at <= m.held AND recorded_at(o.id, o.created_at) <= m.known
       AND (m.held = 'infinity'
            OR (r.state IS DISTINCT FROM 'done' AND r.state IS DISTINCT FROM 'dropped' AND r.stale IS NULL
                AND (e.closed_at IS NULL OR o.closed_by IS NULL OR e.closed_at > m.held)));
