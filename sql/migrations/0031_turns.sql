-- Keep the turns of sessions: what the user asked and what the agent answered, whole, under a number of their own.
--
-- Why: only prompts were kept where they can be found. What an agent answered could be read in its event, until retention emptied it, and
-- was found only where rules or a model had made something of it. A turn is one row: written at the prompt, completed at the turn's end
-- with the agent's last message, the files, checks and commits in between. `#12` now names an observation or a turn: both take their
-- numbers from the same counter. session_prompts becomes turns; its rows keep their ids, get numbers, and the answers that are stored.
-- Releases of before cannot write prompts afterwards: stop them first.
-- How long: each prompt is written three times, about a second per 10,000 of them; the table is locked meanwhile.

ALTER TABLE session_prompts RENAME TO turns;
ALTER TABLE turns RENAME COLUMN text TO prompt;
ALTER TABLE turns RENAME CONSTRAINT session_prompts_pkey TO turns_pkey;
ALTER TABLE turns RENAME CONSTRAINT session_prompts_prompt_number_check TO turns_prompt_number_check;
ALTER TABLE turns RENAME CONSTRAINT session_prompts_server_session_id_prompt_number_key TO turns_server_session_id_prompt_number_key;
ALTER TABLE turns RENAME CONSTRAINT session_prompts_server_session_id_project_id_team_id_fkey
                                TO turns_server_session_id_project_id_team_id_fkey;
ALTER INDEX session_prompts_event RENAME TO turns_event;
ALTER INDEX session_prompts_search RENAME TO turns_search;
ALTER INDEX session_prompts_project RENAME TO turns_project;
ALTER INDEX session_prompts_team RENAME TO turns_team;

-- A turn that somebody writes by hand has no event.
ALTER TABLE turns DROP CONSTRAINT session_prompts_agent_event_id_project_id_team_id_fkey;
ALTER TABLE turns ALTER COLUMN agent_event_id DROP NOT NULL;
ALTER TABLE turns
    ADD CONSTRAINT turns_agent_event_id_project_id_team_id_fkey FOREIGN KEY (agent_event_id, project_id, team_id)
        REFERENCES agent_events (id, project_id, team_id) ON DELETE SET NULL (agent_event_id) DEFERRABLE,
    ADD COLUMN number bigint,
    ADD COLUMN reply text,
    ADD COLUMN actor_id text,
    ADD COLUMN files text[] NOT NULL DEFAULT '{}',
    ADD COLUMN checks text[] NOT NULL DEFAULT '{}',
    ADD COLUMN commits text[] NOT NULL DEFAULT '{}',
    ADD COLUMN ended_at timestamptz;

DROP VIEW session_prompts_in_team;
DROP TRIGGER session_prompts_words ON turns;

-- Numbers after those that were given out.
WITH numbered AS (
    SELECT t.id, coalesce(c.last_number, 0) + row_number() OVER (PARTITION BY t.team_id ORDER BY t.created_at, t.id) AS number
      FROM turns t LEFT JOIN observation_counters c ON c.team_id = t.team_id
)
UPDATE turns t SET number = n.number, ended_at = t.created_at FROM numbered n WHERE n.id = t.id;
INSERT INTO observation_counters (team_id, last_number)
SELECT team_id, max(number) FROM turns GROUP BY team_id
ON CONFLICT (team_id) DO UPDATE SET last_number = excluded.last_number;
ALTER TABLE turns ALTER COLUMN number SET NOT NULL;
CREATE UNIQUE INDEX turns_number ON turns (team_id, number);

-- The answers that are still stored.
WITH answer AS (
    SELECT (SELECT t.id FROM turns t
             WHERE t.server_session_id = e.server_session_id AND t.team_id = e.team_id AND t.created_at <= e.received_at
             ORDER BY t.prompt_number DESC LIMIT 1) AS turn_id,
           e.payload ->> 'last_assistant_message' AS reply, e.received_at
      FROM agent_events e
     WHERE e.event_type = 'assistant_message' AND e.server_session_id IS NOT NULL AND e.payload_purged_at IS NULL
       AND jsonb_typeof(e.payload -> 'last_assistant_message') = 'string'
), whole AS (
    SELECT turn_id, string_agg(reply, E'\n\n' ORDER BY received_at) AS reply, max(received_at) AS ended_at
      FROM answer WHERE turn_id IS NOT NULL GROUP BY turn_id
)
UPDATE turns t
   SET ended_at = w.ended_at,
       reply = CASE WHEN length(w.reply) <= 20000 THEN w.reply ELSE left(w.reply, 12000) || E'\n[…]\n' || right(w.reply, 7900) END
  FROM whole w WHERE w.turn_id = t.id;

-- As before, of all that was said and of the files.
DROP FUNCTION prompt_words();
CREATE FUNCTION turn_words() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named boolean;
BEGIN
    FOREACH named IN ARRAY '{true,false}'::boolean[] LOOP
        BEGIN
            NEW.text_search := search_words(NEW.search_language, NEW.prompt, named)
                || search_words(NEW.search_language, coalesce(NEW.reply, ''), named)
                || search_words(NEW.search_language, array_to_string(NEW.files || NEW.commits, ' '), named);
            EXIT;
        EXCEPTION WHEN program_limit_exceeded THEN
            IF NOT named THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER turns_words
    BEFORE INSERT OR UPDATE OF prompt, reply, files, commits, search_language ON turns FOR EACH ROW EXECUTE FUNCTION turn_words();
UPDATE turns SET search_language = search_language WHERE reply IS NOT NULL;

CREATE VIEW turns_in_team AS
    SELECT * FROM turns WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;
COMMENT ON VIEW turns_in_team IS 'What search reads: the turns of the team in cmserver.team_id, with their indexes usable.';
GRANT SELECT ON turns_in_team TO cmserver_tenant;

COMMENT ON TABLE turns IS 'What users asked for and what the agent answered, whole, numbered from 1 in each session. Its number is the team''s.';
COMMENT ON COLUMN turns.number IS 'From the same counter as those of observations: a number means one thing.';
COMMENT ON COLUMN turns.reply IS 'The agent''s last message of the turn. NULL until there is one.';
COMMENT ON COLUMN turns.actor_id IS 'Whose key it was.';
COMMENT ON COLUMN turns.ended_at IS 'When the agent had answered, or the turn was over without an answer.';

-- The functions that name the table, otherwise as they were.
CREATE OR REPLACE FUNCTION follow_language(project uuid, team uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    language text := (SELECT search_language FROM projects WHERE id = project AND team_id = team);
BEGIN
    UPDATE observations SET search_language = language
     WHERE project_id = project AND team_id = team AND search_language <> language;
    UPDATE turns SET search_language = language
     WHERE project_id = project AND team_id = team AND search_language <> language;
END $$;

CREATE OR REPLACE FUNCTION join_project(joining uuid, target uuid, team uuid) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    name text;
BEGIN
    SET CONSTRAINTS ALL DEFERRED;
    INSERT INTO project_joined_rows (project_id, row_id, team_id)
    SELECT joining, id, team FROM agent_events WHERE project_id = joining AND team_id = team
     UNION ALL
    SELECT joining, id, team FROM observation_generation_jobs WHERE project_id = joining AND team_id = team
     UNION ALL
    SELECT joining, id, team FROM observations WHERE project_id = joining AND team_id = team
     UNION ALL
    SELECT joining, id, team FROM context_injections WHERE project_id = joining AND team_id = team
    ON CONFLICT DO NOTHING;
    UPDATE server_sessions SET project_id = target, origin_project_id = joining WHERE project_id = joining AND team_id = team;
    FOREACH name IN ARRAY '{agent_events,turns,observation_generation_jobs,observation_generation_job_events,
                            generation_lanes,generation_runs,observations,observation_versions,observation_embeddings,
                            observation_sources,consolidation_suggestions,context_injections}'::text[]
    LOOP
        EXECUTE format('UPDATE %I SET project_id = $2 WHERE project_id = $1 AND team_id = $3', name) USING joining, target, team;
    END LOOP;
    UPDATE observation_relationships SET from_project_id = target WHERE from_project_id = joining AND team_id = team;
    UPDATE observation_relationships SET to_project_id = target WHERE to_project_id = joining AND team_id = team;
    PERFORM follow_language(target, team);
    UPDATE projects SET joined_to = target, stays_apart = false, archived_at = coalesce(archived_at, now()), updated_at = now()
     WHERE id = joining AND team_id = team;
    SET CONSTRAINTS ALL IMMEDIATE;
END $_$;

CREATE OR REPLACE FUNCTION project_language() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE observations SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    UPDATE turns SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION separate_project(joined uuid, team uuid) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    target  uuid := (SELECT joined_to FROM projects WHERE id = joined AND team_id = team);
    merged  bigint[];
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving
    SELECT id FROM server_sessions WHERE origin_project_id = joined AND project_id = target AND team_id = team;
    INSERT INTO moving
    SELECT e.id FROM agent_events e
     WHERE e.project_id = target AND e.team_id = team
       AND (e.server_session_id IN (SELECT id FROM moving)
            OR e.id IN (SELECT row_id FROM project_joined_rows WHERE project_id = joined AND team_id = team));
    INSERT INTO moving
    SELECT j.id FROM observation_generation_jobs j
     WHERE j.project_id = target AND j.team_id = team
       AND (j.server_session_id IN (SELECT id FROM moving) OR j.agent_event_id IN (SELECT id FROM moving)
            OR j.id IN (SELECT row_id FROM project_joined_rows WHERE project_id = joined AND team_id = team));
    INSERT INTO moving
    SELECT o.id FROM observations o
     WHERE o.project_id = target AND o.team_id = team
       AND (o.server_session_id IN (SELECT id FROM moving) OR o.created_by_job_id IN (SELECT id FROM moving)
            OR o.quote_event_id IN (SELECT id FROM moving)
            OR o.id IN (SELECT row_id FROM project_joined_rows WHERE project_id = joined AND team_id = team)
            OR o.id IN (SELECT s.observation_id FROM observation_sources s
                         WHERE s.project_id = target AND s.team_id = team
                           AND (s.agent_event_id IN (SELECT id FROM moving) OR s.generation_job_id IN (SELECT id FROM moving))));
    merged := (SELECT array_agg(t.number ORDER BY t.number)
                 FROM observations o JOIN observations t ON t.id = o.superseded_by AND t.team_id = o.team_id
                WHERE o.project_id = target AND o.team_id = team
                  AND (o.id IN (SELECT id FROM moving)) <> (t.id IN (SELECT id FROM moving)));
    IF merged IS NOT NULL THEN
        DROP TABLE moving;
        RETURN merged;
    END IF;
    SET CONSTRAINTS ALL DEFERRED;
    DELETE FROM consolidation_suggestions
     WHERE project_id = target AND team_id = team
       AND (left_id IN (SELECT id FROM moving)) <> (right_id IN (SELECT id FROM moving));
    UPDATE server_sessions SET project_id = joined, origin_project_id = NULL WHERE id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE agent_events SET project_id = joined WHERE id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE turns SET project_id = joined WHERE server_session_id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observation_generation_jobs SET project_id = joined WHERE id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observation_generation_job_events SET project_id = joined
     WHERE generation_job_id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE generation_lanes SET project_id = joined WHERE lane IN (SELECT id FROM moving) AND team_id = team;
    UPDATE generation_runs SET project_id = joined
     WHERE project_id = target AND lane IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observations SET project_id = joined WHERE id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observation_versions SET project_id = joined WHERE observation_id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observation_embeddings SET project_id = joined WHERE observation_id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observation_sources SET project_id = joined WHERE observation_id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE consolidation_suggestions SET project_id = joined WHERE left_id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observation_relationships SET from_project_id = joined WHERE from_id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observation_relationships SET to_project_id = joined WHERE to_id IN (SELECT id FROM moving) AND team_id = team;
    UPDATE context_injections SET project_id = joined
     WHERE project_id = target AND team_id = team
       AND (server_session_id IN (SELECT id FROM moving)
            OR id IN (SELECT row_id FROM project_joined_rows WHERE project_id = joined AND team_id = team));
    DELETE FROM project_joined_rows WHERE project_id = joined AND team_id = team;
    DROP TABLE moving;
    UPDATE projects SET joined_to = NULL, archived_at = NULL, stays_apart = true, updated_at = now()
     WHERE id = joined AND team_id = team;
    PERFORM follow_language(joined, team);
    SET CONSTRAINTS ALL IMMEDIATE;
    RETURN '{}';
END $$;
