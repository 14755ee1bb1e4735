-- What was taken away is told of no other time: not by the text of a receipt, and not by what was known then
--
-- The text of a receipt is cut whatever numbers the words in it have. What somebody took from the team for themselves is marked, so that
-- the past does not tell it either. When a row was written here is a column: the id of what was imported says when it was said.
-- Who erases in one project waits for who erases in another one of the team, since both cut receipts of all.
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

-- Who cuts receipts, of any project, does it alone in the team until the transaction ends.
CREATE FUNCTION lock_receipts(team uuid) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    SELECT pg_advisory_xact_lock(hashtextextended('receipts ' || team::text, 0));
END;
COMMENT ON FUNCTION lock_receipts IS 'Comes before receipts are deleted or cut in a transaction that goes on.';

CREATE FUNCTION receipts_that_tell(team uuid, of_numbers bigint[], since timestamptz) RETURNS uuid[] LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(array_agg(c.id), '{}')
      FROM projects p JOIN context_injections c ON c.project_id = p.id AND c.team_id = p.team_id
     WHERE p.team_id = team AND c.created_at > '-infinity' AND c.created_at >= since AND c.told && of_numbers AND c.text IS NOT NULL;
END;
COMMENT ON FUNCTION receipts_that_tell IS 'The receipts of the team, from then on, whose texts say something of one of these numbers.';

CREATE FUNCTION cut_receipts(team uuid, ids uuid[], gone bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM lock_receipts(team);
    WITH cut AS MATERIALIZED (
        SELECT id, cut_out(text, gone) AS text FROM context_injections WHERE id = ANY(ids) AND team_id = team AND text IS NOT NULL)
    UPDATE context_injections c SET text = cut.text, text_hash = sha256(convert_to(cut.text, 'UTF8'))
      FROM cut WHERE c.id = cut.id AND c.team_id = team;
END $$;
COMMENT ON FUNCTION cut_receipts IS 'Leaves out of the texts of these receipts what they say of these numbers, and what has none.';

CREATE OR REPLACE FUNCTION past_forgets_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    team uuid;
    gone bigint[];
    since timestamptz;
    until timestamptz;
    told uuid[];
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
    ELSE
        -- What it was merged into said its words until the merge was undone.
        DELETE FROM past_values p USING past_values m, old_rows o
         WHERE m.before ? 'merged_from' AND m.before -> 'merged_from' ? o.id::text AND m.team_id = o.team_id
           AND p.observation_id = m.observation_id AND p.team_id = m.team_id;
    END IF;
    -- Nobody was told of it before it was there, by any clock.
    FOR team, gone, since, until IN
        SELECT o.team_id, array_agg(o.number), min(least(o.created_at, recorded_at(o.id, o.created_at))) - interval '1 day',
               max(coalesce((to_jsonb(o) ->> 'ended_at')::timestamptz, 'infinity')) + interval '1 day'
          FROM old_rows o GROUP BY o.team_id
    LOOP
        IF TG_TABLE_NAME = 'turns' THEN
            -- The words of a sub-agent stand in the line of the turn that started it.
            gone := gone || ARRAY(SELECT t.number FROM turns t
                                   WHERE t.team_id = team AND t.server_session_id IN (
                                         SELECT (to_jsonb(o) ->> 'server_session_id')::uuid FROM old_rows o
                                          WHERE o.team_id = team AND to_jsonb(o) ->> 'agent_id' IS NOT NULL));
        END IF;
        told := receipts_that_tell(team, gone, since);
        IF TG_TABLE_NAME = 'turns' THEN
            -- What ran has no number: the lines are cut of whatever was told while the turn was under way.
            told := told || ARRAY(SELECT c.id
                                    FROM projects p JOIN context_injections c ON c.project_id = p.id AND c.team_id = p.team_id
                                   WHERE p.team_id = team AND c.created_at > '-infinity' AND c.created_at BETWEEN since AND until
                                     AND (strpos(c.text, E'\nAnother session is at work here now') > 0
                                          OR strpos(c.text, E'\nThis turn so far') > 0));
        END IF;
        PERFORM cut_receipts(team, told, gone);
    END LOOP;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION past_forgets_entities() RETURNS trigger LANGUAGE plpgsql AS $$
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
        PERFORM cut_receipts(gone.team_id, ARRAY(SELECT c.id FROM context_injections c
                                                  WHERE c.project_id = gone.project_id AND c.team_id = gone.team_id
                                                    AND c.created_at > '-infinity' AND strpos(c.text, gone.name) > 0), '{}');
    END LOOP;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = gone AND team_id = team);
    merged bigint[];
    counts jsonb;
BEGIN
    IF NOT only_count THEN
        PERFORM lock_receipts(team);
    END IF;
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

-- ---- When a row was written
--
-- Those of before go by their ids: nothing of them is written anew.

ALTER TABLE observations ADD COLUMN recorded_at timestamptz;
ALTER TABLE observations ALTER COLUMN recorded_at SET DEFAULT now();
COMMENT ON COLUMN observations.recorded_at IS 'When the team got the row. NULL for what is older than this column: its id says it.';
ALTER TABLE turns ADD COLUMN recorded_at timestamptz;
ALTER TABLE turns ALTER COLUMN recorded_at SET DEFAULT now();
COMMENT ON COLUMN turns.recorded_at IS 'When the team got the row. NULL for what is older than this column: its id says it.';

-- ---- What somebody took for themselves

ALTER TABLE observations ADD COLUMN taken_at timestamptz;
COMMENT ON COLUMN observations.taken_at IS 'When its person took it from the team, which is told of it at no time from then on. NULL for all else.';

-- Counting an access, and writing the words of search anew, changes nothing that is said.
CREATE OR REPLACE FUNCTION observation_keeps_past() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    unsaid text[] := '{content_search,content_words,access_count,last_accessed_at,updated_at,search_language,project_id,generation_key,'
        'created_by_job_id,server_session_id,quote_event_id,turn_number,taken_at,recorded_at}';
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
        PERFORM cut_receipts(NEW.team_id, receipts_that_tell(NEW.team_id, ARRAY[NEW.number], '-infinity'), ARRAY[NEW.number]);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER observation_is_taken AFTER UPDATE OF taken_at, expires_at ON observations FOR EACH ROW
    WHEN (OLD.taken_at IS DISTINCT FROM NEW.taken_at) EXECUTE FUNCTION observation_is_taken();
CREATE TRIGGER overviews_forget_taken AFTER UPDATE OF taken_at ON observations FOR EACH ROW
    WHEN (OLD.taken_at IS NULL AND NEW.taken_at IS NOT NULL) EXECUTE FUNCTION overviews_forget_changed();
CREATE TRIGGER past_forgets_taken AFTER UPDATE OF taken_at ON observations FOR EACH ROW
    WHEN (OLD.taken_at IS NULL AND NEW.taken_at IS NOT NULL) EXECUTE FUNCTION past_forgets_overviews();

-- ---- The past, with both columns

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
                 to_timestamp((o.stale ->> 'markedAtEpoch')::bigint / 1000.0)) AS valid_to, o.taken_at, o.recorded_at
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
     WHERE o.taken_at IS NULL AND o.created_at <= m.held AND coalesce(o.recorded_at, recorded_at(o.id, o.created_at)) <= m.known
       AND (m.held = 'infinity'
            OR (r.state IS DISTINCT FROM 'done' AND r.state IS DISTINCT FROM 'dropped' AND r.stale IS NULL
                AND (e.closed_at IS NULL OR o.closed_by IS NULL OR e.closed_at > m.held)));

CREATE OR REPLACE VIEW cmserver_past.turns WITH (security_invoker = true) AS
    SELECT t.id, t.team_id, t.project_id, t.server_session_id, t.agent_event_id, t.prompt_number, r.prompt,
           CASE WHEN p.before ?| '{prompt,reply,files,commits}' OR a.is_running THEN
                search_words(t.search_language, r.prompt) || search_words(t.search_language, coalesce(a.reply, ''))
                || search_words(t.search_language, array_to_string(a.files || a.commits, ' '))
                ELSE t.text_search END AS text_search,
           t.created_at, t.search_language, t.number, a.reply, t.actor_id, a.files, a.checks, a.commits, a.ended_at, t.agent_id,
           r.own_line, r.borrowed, t.recorded_at
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
     WHERE t.created_at <= m.held AND coalesce(t.recorded_at, recorded_at(t.id, t.created_at)) <= m.known;

CREATE OR REPLACE VIEW cmserver_past.agent_events WITH (security_invoker = true) AS
    SELECT id, project_id, team_id, server_session_id, source_adapter, source_event_id, idempotency_key, event_type, platform_source,
           origin, generate, size_chars, payload, metadata, occurred_at, received_at, created_at, payload_purged_at
      FROM agent_events WHERE created_at <= cmserver_past.known_at() AND occurred_at <= cmserver_past.held_at();

CREATE OR REPLACE FUNCTION observations_as_of(t timestamptz) RETURNS SETOF cmserver_past.observations LANGUAGE sql
    BEGIN ATOMIC SELECT * FROM observations_at(t, 'infinity'); END;
CREATE OR REPLACE FUNCTION observations_known_at(t timestamptz) RETURNS SETOF cmserver_past.observations LANGUAGE sql
    BEGIN ATOMIC SELECT * FROM observations_at('infinity', t); END;

-- As it was, and the team that gets a session has its rows from then on.
CREATE OR REPLACE FUNCTION give_session(given uuid, team uuid, to_team uuid, to_project uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = given AND team_id = team);
    merged bigint[];
    last   bigint;
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving VALUES (given);
    merged := gather_moving(held, team, true);
    IF merged IS NOT NULL THEN
        DROP TABLE moving;
        RETURN merged;
    END IF;
    CREATE TEMPORARY TABLE given_sessions ON COMMIT DROP AS SELECT * FROM server_sessions WHERE id = given AND team_id = team;
    CREATE TEMPORARY TABLE given_events ON COMMIT DROP AS
        SELECT * FROM agent_events WHERE server_session_id = given AND project_id = held AND team_id = team;
    CREATE TEMPORARY TABLE given_turns ON COMMIT DROP AS SELECT * FROM turns WHERE server_session_id = given AND team_id = team;
    CREATE TEMPORARY TABLE given_jobs ON COMMIT DROP AS
        SELECT * FROM observation_generation_jobs
         WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team AND phase = 'open';
    CREATE TEMPORARY TABLE given_observations ON COMMIT DROP AS
        SELECT * FROM observations o
         WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team
           AND NOT EXISTS (SELECT FROM observation_derivations d WHERE d.derived_observation_id = o.id AND d.team_id = team);
    CREATE TEMPORARY TABLE given_sources ON COMMIT DROP AS
        SELECT * FROM observation_sources
         WHERE observation_id IN (SELECT id FROM given_observations) AND team_id = team
           AND (agent_event_id IS NULL OR agent_event_id IN (SELECT id FROM given_events));
    CREATE TEMPORARY TABLE given_versions ON COMMIT DROP AS
        SELECT * FROM observation_versions
         WHERE observation_id IN (SELECT id FROM given_observations) AND team_id = team AND source_ids = '{}';
    -- What another session has said, too, is that one's from now on, as it said it; this one's copy has another id.
    CREATE TEMPORARY TABLE said_elsewhere ON COMMIT DROP AS
        SELECT DISTINCT ON (o.id) o.id, gen_random_uuid() AS copy, e.server_session_id, e.received_at, n.actor_id
          FROM given_observations o
          JOIN observation_sources s ON s.observation_id = o.id AND s.project_id = held AND s.team_id = team
          JOIN agent_events e ON e.id = s.agent_event_id AND e.server_session_id IS DISTINCT FROM given
          LEFT JOIN server_sessions n ON n.id = e.server_session_id
         ORDER BY o.id, e.received_at;
    DELETE FROM observation_sources s USING said_elsewhere e
     WHERE s.observation_id = e.id AND s.team_id = team
       AND (s.agent_event_id IN (SELECT id FROM given_events) OR s.generation_job_id IN (SELECT id FROM moving));
    UPDATE observations o
       SET server_session_id = e.server_session_id, actor_id = e.actor_id, created_at = e.received_at, recorded_at = e.received_at,
           created_by_job_id = NULL, turn_number = NULL, quote = NULL, quote_event_id = NULL, prompt_number = NULL, updated_at = now()
      FROM said_elsewhere e
     WHERE o.id = e.id AND o.team_id = team
       AND (o.server_session_id = given OR o.created_by_job_id IN (SELECT id FROM moving)
            OR o.quote_event_id IN (SELECT id FROM given_events));
    UPDATE given_observations o SET id = e.copy, server_session_id = given, generation_key = NULL FROM said_elsewhere e WHERE e.id = o.id;
    UPDATE given_sources s SET id = gen_random_uuid(), observation_id = e.copy FROM said_elsewhere e WHERE e.id = s.observation_id;
    DELETE FROM given_versions v USING said_elsewhere e WHERE e.id = v.observation_id;
    DROP TABLE moving;
    -- What was drawn of it for its person stays theirs.
    UPDATE personal_observations SET turn_id = NULL, project_id = NULL WHERE turn_id IN (SELECT id FROM given_turns) AND team_id = team;
    DELETE FROM memory_telemetry
     WHERE team_id = team AND session_id IN (SELECT unnest(ARRAY[id::text, external_session_id, content_session_id]) FROM given_sessions);
    PERFORM erase_session(given, team, false, false);

    INSERT INTO observation_counters (team_id) VALUES (to_team) ON CONFLICT DO NOTHING;
    UPDATE observation_counters
       SET last_number = last_number + (SELECT count(*) FROM given_turns) + (SELECT count(*) FROM given_observations),
           turns = turns + (SELECT count(*) FROM given_turns)
     WHERE team_id = to_team RETURNING last_number INTO last;
    CREATE TEMPORARY TABLE given_numbers ON COMMIT DROP AS
        SELECT number, last + 1 - row_number() OVER (ORDER BY number DESC) AS new
          FROM (SELECT number FROM given_turns UNION ALL SELECT number FROM given_observations) numbers;
    UPDATE given_sessions
       SET origin_project_id = NULL, project_id = to_project, team_id = to_team, idle_from = now(), moved_at = now(), updated_at = now();
    -- Other keys: whoever sends the same where it was learns nothing from a conflict.
    UPDATE given_events
       SET project_id = to_project, team_id = to_team, idempotency_key = split_part(idempotency_key, '@', 1) || '@' || given,
           created_at = now();
    UPDATE given_turns t SET project_id = to_project, team_id = to_team, number = n.new, recorded_at = now() FROM given_numbers n WHERE n.number = t.number;
    UPDATE given_observations o
       SET project_id = to_project, team_id = to_team, number = n.new, recorded_at = now(), created_by_job_id = NULL,
           turn_number = (SELECT new FROM given_numbers WHERE number = o.turn_number),
           closed_by = (SELECT new FROM given_numbers WHERE number = o.closed_by),
           server_session_id = CASE WHEN server_session_id = given THEN given END,
           quote_event_id = (SELECT id FROM given_events WHERE id = o.quote_event_id),
           superseded_at = CASE WHEN superseded_by IN (SELECT id FROM given_observations) THEN superseded_at END,
           superseded_by = CASE WHEN superseded_by IN (SELECT id FROM given_observations) THEN superseded_by END
      FROM given_numbers n WHERE n.number = o.number;
    UPDATE given_sources SET project_id = to_project, team_id = to_team, generation_job_id = NULL;
    UPDATE given_versions SET project_id = to_project, team_id = to_team;
    SET CONSTRAINTS ALL DEFERRED;
    INSERT INTO server_sessions SELECT * FROM given_sessions;
    INSERT INTO agent_events SELECT * FROM given_events;
    INSERT INTO turns SELECT * FROM given_turns;
    INSERT INTO untraced_turns (turn_id, team_id, project_id)
    SELECT id, to_team, to_project FROM given_turns WHERE ended_at IS NOT NULL ORDER BY created_at, number;
    INSERT INTO observations SELECT * FROM given_observations;
    INSERT INTO observation_sources SELECT * FROM given_sources;
    INSERT INTO observation_versions SELECT * FROM given_versions;
    INSERT INTO observation_generation_jobs
           (id, project_id, team_id, lane, agent_event_id, source_type, source_id, source_run, server_session_id, job_type,
            idempotency_key, max_attempts, payload, size_chars, api_key_id, actor_id, source_adapter, request_id, created_at, waits_for_end)
    SELECT id, to_project, to_team, lane, agent_event_id, source_type, source_id, source_run, server_session_id, job_type,
           idempotency_key, max_attempts, payload, size_chars, api_key_id, actor_id, source_adapter, request_id, created_at, waits_for_end
      FROM given_jobs ORDER BY seq;
    INSERT INTO generation_lanes (lane, team_id, project_id, due_at)
    SELECT DISTINCT lane, to_team, to_project, now() FROM given_jobs ON CONFLICT DO NOTHING;
    PERFORM follow_language(to_project, to_team);
    SET CONSTRAINTS ALL IMMEDIATE;
    DROP TABLE given_sessions, given_events, given_turns, given_jobs, given_observations, given_sources, given_versions, said_elsewhere,
               given_numbers;
    RETURN '{}';
END $$;
