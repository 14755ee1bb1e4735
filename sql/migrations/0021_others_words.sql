-- A team can say who reads the words of others: its members, its owners, or nobody but the person
--
-- A session has the person whose key began it, and so has an observation that came without a session. Where not all words may be read,
-- the statement that sets the team of a transaction sets `cmserver.words` to `own`, and `cmserver.reader` to the person: a second policy,
-- `words`, then leaves of each table that holds words, or was made of them, what is the reader's and what is nobody's. What is mixed of
-- several people's words (entities, pages of projects, what the steward drew) it leaves to who reads all. Its first condition is about the
-- transaction alone and is asked once a statement. Triggers see all: what is deleted is forgotten everywhere.
-- What others did is read past that policy in `work_in_team`: counts of files, how checks ended, and commits, without a word.
-- Every team stays as it is. What keys of before, which are nobody's, have sent stays the team's; what a person's own keys have sent is
-- theirs.
--
-- How long: seconds for each hundred thousand sessions and observations of people whose keys are bound to them; no other row is written.

ALTER TABLE teams ADD COLUMN words text NOT NULL DEFAULT 'members' CHECK (words IN ('members', 'owners', 'nobody'));
COMMENT ON COLUMN teams.words IS 'Who reads what others of the team and their agents said: members, owners, or nobody but the person.';

ALTER TABLE server_sessions ADD COLUMN person_id uuid;
COMMENT ON COLUMN server_sessions.person_id IS 'The person whose key began it. NULL for nobody''s, whose words are the team''s.';
ALTER TABLE observations ADD COLUMN person_id uuid;
COMMENT ON COLUMN observations.person_id IS 'The person whose words these are; all zeros for several. NULL for nobody''s, whose words are the team''s.';

-- A name is a person's where all keys that act, or acted, under it are theirs.
CREATE FUNCTION person_of_name(team uuid, actor text) RETURNS uuid LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT min(k.user_id::text)::uuid FROM api_keys k WHERE k.team_id = team AND actor IN (k.actor_id, k.former_actor)
    HAVING count(*) = count(k.user_id) AND count(DISTINCT k.user_id) = 1;
END;
COMMENT ON FUNCTION person_of_name IS 'The person whose keys all that act, or acted, under the name in the team are; NULL for nobody.';
CREATE TEMPORARY TABLE person_of_actor ON COMMIT DROP AS
SELECT team_id, actor, person_of_name(team_id, actor) AS person_id
  FROM (SELECT team_id, actor_id AS actor FROM api_keys UNION SELECT team_id, former_actor FROM api_keys) k WHERE actor IS NOT NULL;
UPDATE server_sessions s SET person_id = p.person_id FROM person_of_actor p WHERE p.team_id = s.team_id AND p.actor = s.actor_id AND p.person_id IS NOT NULL;
UPDATE observations o SET person_id = s.person_id FROM server_sessions s
 WHERE s.id = o.server_session_id AND s.person_id IS NOT NULL;
UPDATE observations o SET person_id = p.person_id FROM person_of_actor p
 WHERE p.team_id = o.team_id AND p.actor = o.actor_id AND p.person_id IS NOT NULL AND o.server_session_id IS NULL;
UPDATE observations o SET person_id = '00000000-0000-0000-0000-000000000000' FROM observation_derivations d
 WHERE d.derived_observation_id = o.id;
UPDATE observations t SET person_id = '00000000-0000-0000-0000-000000000000'
 WHERE EXISTS (SELECT FROM observations o WHERE o.superseded_by = t.id AND o.person_id IS DISTINCT FROM t.person_id);

-- Asked only where not all words may be read. They run as who asks, behind the policies.
CREATE FUNCTION reads_session(session uuid) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1 AS $$
BEGIN
    RETURN EXISTS (SELECT FROM server_sessions s WHERE s.id = session);
END $$;
CREATE FUNCTION reads_turn(turn uuid) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1 AS $$
BEGIN
    RETURN EXISTS (SELECT FROM turns t WHERE t.id = turn);
END $$;
CREATE FUNCTION reads_observation(observation uuid) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1 AS $$
BEGIN
    RETURN EXISTS (SELECT FROM observations o WHERE o.id = observation);
END $$;
-- By the id alone, which stands in the indexes by which jobs are listed and counted. A row that is about to be written is not there yet.
CREATE VIEW session_of_job_in_team AS
    SELECT id, server_session_id, source_type FROM observation_generation_jobs
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;
COMMENT ON VIEW session_of_job_in_team IS 'Of which session a job is, whoever reads its words.';
GRANT SELECT ON session_of_job_in_team TO cmserver_tenant;
CREATE FUNCTION reads_job(job uuid) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1 AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM session_of_job_in_team j
                        WHERE j.id = job AND j.source_type <> 'observation_reindex' AND NOT reads_session(j.server_session_id));
END $$;

-- What was merged of several people's words is of several, also when what it was merged from is purged. Where the merge is undone it is
-- its session's again, or of the person whose name it has.
CREATE FUNCTION words_are_of_several() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    several constant uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    UPDATE observations SET person_id = several WHERE id = NEW.superseded_by AND person_id IS DISTINCT FROM NEW.person_id;
    UPDATE observations t
       SET person_id = CASE WHEN t.server_session_id IS NOT NULL
                            THEN (SELECT s.person_id FROM server_sessions s WHERE s.id = t.server_session_id)
                            ELSE coalesce(person_of_name(t.team_id, t.actor_id), several) END
     WHERE t.id = OLD.superseded_by AND t.person_id = several AND t.agent IS DISTINCT FROM 'steward'
       AND NOT EXISTS (SELECT FROM observations o WHERE o.superseded_by = t.id);
    RETURN NULL;
END $$;
CREATE TRIGGER words_are_of_several AFTER UPDATE OF superseded_by ON observations
    FOR EACH ROW WHEN (OLD.superseded_by IS DISTINCT FROM NEW.superseded_by) EXECUTE FUNCTION words_are_of_several();

DO $$
DECLARE
    -- Not equal: a condition of which the planner thinks that nearly every row has it.
    all_words text := '(SELECT CASE WHEN pg_trigger_depth() > 0 THEN '''' ELSE coalesce(current_setting(''cmserver.words'', true), '''') END) <> ''own''';
    one record;
BEGIN
    FOR one IN SELECT * FROM (VALUES
        ('server_sessions', 'person_id IS NULL OR person_id::text = current_setting(''cmserver.reader'', true)'),
        ('agent_events', 'reads_session(server_session_id)'),
        ('turns', 'reads_session(server_session_id)'),
        ('turn_sentences', 'reads_turn(turn_id)'),
        ('turn_traces', 'reads_turn(turn_id)'),
        ('turn_ledger', 'reads_turn(earlier_id) AND reads_turn(later_id)'),
        ('observations', 'person_id IS NULL OR person_id::text = current_setting(''cmserver.reader'', true)'),
        ('observation_sources', 'reads_observation(observation_id)'),
        ('observation_versions', 'reads_observation(observation_id)'),
        ('observation_relationships', 'reads_observation(from_id) AND reads_observation(to_id)'),
        ('consolidation_suggestions', 'reads_observation(left_id) AND reads_observation(right_id)'),
        ('past_values', 'reads_observation(observation_id) OR reads_turn(turn_id)'),
        ('observation_embeddings', 'reads_observation(observation_id) OR reads_turn(turn_id)'),
        ('context_injections', 'reads_session(server_session_id)'),
        ('observation_generation_jobs', 'reads_job(id)'),
        ('observation_generation_job_events', 'reads_job(generation_job_id)'),
        ('generation_runs', 'answer IS NULL OR reads_session(lane)'),
        ('replay_lines', 'reads_session(server_session_id)'),
        ('memory_telemetry', 'false'),
        ('entities', 'false'),
        ('entity_mentions', 'false'),
        ('entity_relations', 'false'),
        ('entity_relation_evidence', 'false'),
        ('project_overviews', 'false'),
        ('observation_derivations', 'false'),
        ('steward_runs', 'false')) AS v (name, condition)
    LOOP
        EXECUTE format('CREATE POLICY words ON %I AS RESTRICTIVE FOR SELECT USING (%s)', one.name,
                       all_words || CASE WHEN one.condition = 'false' THEN '' ELSE ' OR ' || one.condition END);
    END LOOP;
END $$;

-- The past, with the column
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
                 to_timestamp((o.stale ->> 'markedAtEpoch')::bigint / 1000.0)) AS valid_to, o.taken_at, o.recorded_at, o.person_id
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
CREATE OR REPLACE FUNCTION observations_as_of(t timestamptz) RETURNS SETOF cmserver_past.observations LANGUAGE sql
    BEGIN ATOMIC SELECT * FROM observations_at(t, 'infinity'); END;
CREATE OR REPLACE FUNCTION observations_known_at(t timestamptz) RETURNS SETOF cmserver_past.observations LANGUAGE sql
    BEGIN ATOMIC SELECT * FROM observations_at('infinity', t); END;

-- The views of search read past the policies.
CREATE OR REPLACE VIEW observations_in_team AS
    SELECT id, number, project_id, team_id, server_session_id, scope, kind, type, origin, title, subtitle, narrative, facts, concepts,
           files_read, files_modified, summary, prompt_number, content, content_search, content_words, read_tokens, discovery_tokens,
           access_count, last_accessed_at, generation_key, metadata, created_by_job_id, created_at, updated_at, search_language,
           importance, quote, quote_event_id, anchors, state, closed_by, closed_at, ttl_seconds, expires_at, version, superseded_by,
           superseded_at, merged_from, agent, caller_type, stale, actor_id, turn_number
      FROM observations
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
       AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > now())
       AND ((SELECT CASE WHEN pg_trigger_depth() > 0 THEN '' ELSE coalesce(current_setting('cmserver.words', true), '') END) <> 'own'
            OR person_id IS NULL OR person_id::text = current_setting('cmserver.reader', true));
CREATE OR REPLACE VIEW turns_in_team AS
    SELECT id, team_id, project_id, server_session_id, agent_event_id, prompt_number, prompt, text_search, created_at,
           search_language, number, reply, actor_id, files, checks, commits, ended_at, agent_id
      FROM turns
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
       AND ((SELECT CASE WHEN pg_trigger_depth() > 0 THEN '' ELSE coalesce(current_setting('cmserver.words', true), '') END) <> 'own'
            OR reads_session(server_session_id));

-- What others did, a row for each of their sessions whose words the reader may not read: no word, no name of a file or a command.
CREATE VIEW work_in_team AS
    SELECT s.id, s.team_id, s.project_id, s.actor_id, s.started_at,
           (SELECT count(DISTINCT f) FROM turns t CROSS JOIN unnest(t.files) f WHERE t.server_session_id = s.id) AS files,
           (SELECT CASE WHEN t.checks[cardinality(t.checks)] LIKE '%: passed' THEN 'passed' ELSE 'failed' END FROM turns t
             WHERE t.server_session_id = s.id AND t.checks <> '{}' ORDER BY t.number DESC LIMIT 1) AS checks,
           ARRAY(SELECT DISTINCT left(x.name, 7) FROM turns t JOIN turn_traces x ON x.turn_id = t.id AND x.kind = 'commit'
                  WHERE t.server_session_id = s.id AND x.name ~ '^[0-9a-f]{7}' ORDER BY 1) AS commits
      FROM server_sessions s
     WHERE s.team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
       AND coalesce(current_setting('cmserver.words', true), '') = 'own' AND NOT reads_session(s.id);
COMMENT ON VIEW work_in_team IS 'What others did whose words the reader of the transaction may not read: counts of files, how checks ended, commits.';
GRANT SELECT ON work_in_team TO cmserver_tenant;
