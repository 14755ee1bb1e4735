-- Two projects that turn out to be one are joined, and can be separated again.
--
-- Why: a repository that was known by two names (a path and an address, or two spellings) had two memories. join_project() gives
-- all rows of one project to another; its names mean the other from then on. What goes back when they are separated is remembered:
-- sessions know the project under whose name they came (origin_project_id), which also keeps two sessions apart that their agent
-- gave the same id, and project_joined_rows has the ids of what needs no session. Events keep their keys, which contain the first
-- project's id, so an event that is sent again after a join is still known.
-- References between rows of a project can be checked at the end of a transaction now, because rows move one table after the other.
-- The previous release keeps working: it finds no joined project by its names, and shows the joined rows in the other one.
-- How long: a moment, and two indexes on sessions; a second for 100,000 sessions.

ALTER TABLE projects
    ADD COLUMN joined_to uuid,
    ADD COLUMN stays_apart boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT projects_joined_to_another CHECK (joined_to <> id),
    ADD CONSTRAINT projects_joined_is_archived CHECK (joined_to IS NULL OR archived_at IS NOT NULL),
    ADD CONSTRAINT projects_joined_to_fkey FOREIGN KEY (joined_to, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE;
CREATE INDEX projects_joined ON projects (joined_to, team_id) WHERE joined_to IS NOT NULL;
COMMENT ON COLUMN projects.joined_to IS 'The project that has its rows, and is meant by its names.';
COMMENT ON COLUMN projects.stays_apart IS 'It was separated again: it is joined by nobody but people.';

ALTER TABLE server_sessions
    ADD COLUMN origin_project_id uuid,
    ADD CONSTRAINT server_sessions_origin_fkey FOREIGN KEY (origin_project_id, team_id) REFERENCES projects (id, team_id)
        ON DELETE CASCADE;
CREATE INDEX server_sessions_origin ON server_sessions (origin_project_id, team_id) WHERE origin_project_id IS NOT NULL;
COMMENT ON COLUMN server_sessions.origin_project_id IS 'The joined project by whose name it was made; NULL for its own project.';
DROP INDEX server_sessions_external;
DROP INDEX server_sessions_content;
CREATE UNIQUE INDEX server_sessions_external ON server_sessions
    (coalesce(origin_project_id, project_id), coalesce(platform_source, ''), external_session_id)
    WHERE external_session_id IS NOT NULL;
CREATE INDEX server_sessions_content ON server_sessions (coalesce(origin_project_id, project_id), content_session_id)
    WHERE content_session_id IS NOT NULL;

CREATE TABLE project_joined_rows (
    project_id uuid NOT NULL,
    row_id     uuid NOT NULL,
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    PRIMARY KEY (project_id, row_id),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX project_joined_rows_team ON project_joined_rows (team_id);
COMMENT ON TABLE project_joined_rows IS 'The events, jobs, observations and receipts that a joined project had; they may be gone.';
ALTER TABLE project_joined_rows ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON project_joined_rows USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

DO $$
DECLARE
    reference record;
BEGIN
    FOR reference IN
        SELECT c.conrelid::regclass AS name, c.conname FROM pg_constraint c
         WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace AND c.confrelid <> 'projects'::regclass
           AND EXISTS (SELECT FROM pg_attribute a
                        WHERE a.attrelid = c.confrelid AND a.attnum = ANY (c.confkey) AND a.attname = 'project_id')
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER CONSTRAINT %I DEFERRABLE INITIALLY IMMEDIATE', reference.name, reference.conname);
    END LOOP;
END $$;

-- What calls cost is added up by project: rows that move take it along.
CREATE OR REPLACE FUNCTION generation_runs_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO generation_spending AS s
        SELECT team_id, (created_at AT TIME ZONE 'UTC')::date, project_id, provider, model, sum(sign),
               coalesce(sum(sign) FILTER (WHERE status IN ('failed', 'unusable', 'lost')), 0),
               coalesce(sum(sign) FILTER (WHERE cost_usd IS NULL
                   AND (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens) <> (0, 0, 0, 0)), 0),
               sum(sign * input_tokens), sum(sign * output_tokens), sum(sign * cache_read_tokens), sum(sign * cache_write_tokens),
               coalesce(sum(sign * cost_usd), 0)
          FROM (SELECT 1 AS sign, n.* FROM new_rows n) r
         GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (team_id, day, project_id, provider, model) DO UPDATE
           SET calls = s.calls + excluded.calls, failed_calls = s.failed_calls + excluded.failed_calls,
               unpriced_calls = s.unpriced_calls + excluded.unpriced_calls, input_tokens = s.input_tokens + excluded.input_tokens,
               output_tokens = s.output_tokens + excluded.output_tokens,
               cache_read_tokens = s.cache_read_tokens + excluded.cache_read_tokens,
               cache_write_tokens = s.cache_write_tokens + excluded.cache_write_tokens, cost_usd = s.cost_usd + excluded.cost_usd;
    ELSIF EXISTS (SELECT FROM new_rows n JOIN old_rows o ON o.id = n.id
                   WHERE (n.project_id, n.model, n.status IN ('failed', 'unusable', 'lost'), n.cost_usd, n.input_tokens,
                          n.output_tokens, n.cache_read_tokens, n.cache_write_tokens)
                         IS DISTINCT FROM (o.project_id, o.model, o.status IN ('failed', 'unusable', 'lost'), o.cost_usd,
                          o.input_tokens, o.output_tokens, o.cache_read_tokens, o.cache_write_tokens)) THEN
        INSERT INTO generation_spending AS s
        SELECT team_id, (created_at AT TIME ZONE 'UTC')::date, project_id, provider, model, sum(sign),
               coalesce(sum(sign) FILTER (WHERE status IN ('failed', 'unusable', 'lost')), 0),
               coalesce(sum(sign) FILTER (WHERE cost_usd IS NULL
                   AND (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens) <> (0, 0, 0, 0)), 0),
               sum(sign * input_tokens), sum(sign * output_tokens), sum(sign * cache_read_tokens), sum(sign * cache_write_tokens),
               coalesce(sum(sign * cost_usd), 0)
          FROM (SELECT 1 AS sign, n.* FROM new_rows n UNION ALL SELECT -1, o.* FROM old_rows o) r
         GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (team_id, day, project_id, provider, model) DO UPDATE
           SET calls = s.calls + excluded.calls, failed_calls = s.failed_calls + excluded.failed_calls,
               unpriced_calls = s.unpriced_calls + excluded.unpriced_calls, input_tokens = s.input_tokens + excluded.input_tokens,
               output_tokens = s.output_tokens + excluded.output_tokens,
               cache_read_tokens = s.cache_read_tokens + excluded.cache_read_tokens,
               cache_write_tokens = s.cache_write_tokens + excluded.cache_write_tokens, cost_usd = s.cost_usd + excluded.cost_usd;
    END IF;
    RETURN NULL;
END $$;

-- Texts are searched in the language of their project.
CREATE FUNCTION follow_language(project uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    language text := (SELECT search_language FROM projects WHERE id = project AND team_id = team);
BEGIN
    UPDATE observations SET search_language = language
     WHERE project_id = project AND team_id = team AND search_language <> language;
    UPDATE session_prompts SET search_language = language
     WHERE project_id = project AND team_id = team AND search_language <> language;
END $$;

CREATE FUNCTION join_project(joining uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
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
    FOREACH name IN ARRAY '{agent_events,session_prompts,observation_generation_jobs,observation_generation_job_events,
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
END $$;

-- The numbers of observations that were merged with some of the other project since; nothing is done while there are any.
CREATE FUNCTION separate_project(joined uuid, team uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
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
    UPDATE session_prompts SET project_id = joined WHERE server_session_id IN (SELECT id FROM moving) AND team_id = team;
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

REVOKE ALL ON FUNCTION follow_language(uuid, uuid), join_project(uuid, uuid, uuid), separate_project(uuid, uuid) FROM PUBLIC;
