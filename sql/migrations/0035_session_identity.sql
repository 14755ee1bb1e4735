-- A session that hooks report belongs to one project, and can be moved to another one.
--
-- Why: hooks name the folder's project anew in each call, and that changes while a session runs: a first remote, a work tree that is
-- removed. Such a session was cut in two. Hooks now find it by team, agent and the agent's id (from_hooks, which the first call of a
-- hook sets, on an older session as well); a call of the API that names a project still means the session of that project.
-- origin_project_id keeps the project by whose name the session was made through every join, separation and move: what is sent again
-- under that name is known by it. It is no longer a reference, so that deleting that project does not take along what has left it.
-- Sessions that a joined project had are remembered by their ids in project_joined_rows, as its other rows are: a session that was
-- moved by hand since stays where it was moved to.
-- A folder that gets a name keeps its memory: its project takes the name, and its path stays an alias, of which name_until says that it
-- was the name until then, so that this can be undone.
-- The previous release keeps working: it finds sessions in their project.
-- How long: a moment, and one index on the sessions of hooks, of which there are none yet.

ALTER TABLE server_sessions
    ADD COLUMN from_hooks boolean NOT NULL DEFAULT false,
    ADD COLUMN moved_at timestamptz,
    DROP CONSTRAINT server_sessions_origin_fkey;
DROP INDEX server_sessions_origin;
CREATE UNIQUE INDEX server_sessions_of_hooks ON server_sessions (team_id, coalesce(platform_source, ''), external_session_id)
    WHERE from_hooks;
COMMENT ON COLUMN server_sessions.from_hooks IS 'Whether hooks find it by its agent''s id alone, whatever the folder''s project is.';
COMMENT ON COLUMN server_sessions.moved_at IS 'When people moved it here from another project. NULL for never.';
COMMENT ON COLUMN server_sessions.origin_project_id IS
    'The project by whose name it was made, if that is another one: its keys and those of its events contain it. It may be deleted.';

ALTER TABLE project_aliases ADD COLUMN name_until timestamptz;
COMMENT ON COLUMN project_aliases.name_until IS
    'When the project got another name by itself, whose name it was until then. NULL for what people called it.';

INSERT INTO project_joined_rows (project_id, row_id, team_id)
SELECT p.id, s.id, s.team_id
  FROM projects p JOIN server_sessions s ON s.origin_project_id = p.id AND s.project_id = p.joined_to AND s.team_id = p.team_id
 WHERE p.joined_to IS NOT NULL
ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION join_project(joining uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    SET CONSTRAINTS ALL DEFERRED;
    INSERT INTO project_joined_rows (project_id, row_id, team_id)
    SELECT joining, id, team FROM server_sessions WHERE project_id = joining AND team_id = team
     UNION ALL
    SELECT joining, id, team FROM agent_events WHERE project_id = joining AND team_id = team
     UNION ALL
    SELECT joining, id, team FROM observation_generation_jobs WHERE project_id = joining AND team_id = team
     UNION ALL
    SELECT joining, id, team FROM observations WHERE project_id = joining AND team_id = team
     UNION ALL
    SELECT joining, id, team FROM context_injections WHERE project_id = joining AND team_id = team
    ON CONFLICT DO NOTHING;
    UPDATE server_sessions SET project_id = target, origin_project_id = nullif(coalesce(origin_project_id, joining), target)
     WHERE project_id = joining AND team_id = team;
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
END $$;

-- Adds to the table `moving`, which has ids of rows of the project `held` (of sessions, and of what else is to go), the ids of all that
-- belongs to them; returns the numbers of observations that were merged with some that stay.
CREATE FUNCTION gather_moving(held uuid, team uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO moving
    SELECT e.id FROM agent_events e
     WHERE e.project_id = held AND e.team_id = team AND e.server_session_id IN (SELECT id FROM moving)
    ON CONFLICT DO NOTHING;
    INSERT INTO moving
    SELECT j.id FROM observation_generation_jobs j
     WHERE j.project_id = held AND j.team_id = team
       AND (j.server_session_id IN (SELECT id FROM moving) OR j.agent_event_id IN (SELECT id FROM moving))
    ON CONFLICT DO NOTHING;
    INSERT INTO moving
    SELECT o.id FROM observations o
     WHERE o.project_id = held AND o.team_id = team
       AND (o.server_session_id IN (SELECT id FROM moving) OR o.created_by_job_id IN (SELECT id FROM moving)
            OR o.quote_event_id IN (SELECT id FROM moving)
            OR o.id IN (SELECT s.observation_id FROM observation_sources s
                         WHERE s.project_id = held AND s.team_id = team
                           AND (s.agent_event_id IN (SELECT id FROM moving) OR s.generation_job_id IN (SELECT id FROM moving))))
    ON CONFLICT DO NOTHING;
    RETURN (SELECT array_agg(t.number ORDER BY t.number)
              FROM observations o JOIN observations t ON t.id = o.superseded_by AND t.team_id = o.team_id
             WHERE o.project_id = held AND o.team_id = team
               AND (o.id IN (SELECT id FROM moving)) <> (t.id IN (SELECT id FROM moving)));
END $$;

-- Gives the rows of the table `moving` from one project to another. The sessions among them are the caller's.
CREATE FUNCTION move_gathered(held uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM consolidation_suggestions
     WHERE project_id = held AND team_id = team
       AND (left_id IN (SELECT id FROM moving)) <> (right_id IN (SELECT id FROM moving));
    UPDATE agent_events SET project_id = target WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE turns SET project_id = target
     WHERE server_session_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_generation_jobs SET project_id = target
     WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_generation_job_events SET project_id = target
     WHERE generation_job_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE generation_lanes SET project_id = target WHERE lane IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE generation_runs SET project_id = target
     WHERE project_id = held AND lane IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observations SET project_id = target WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_versions SET project_id = target
     WHERE observation_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_embeddings SET project_id = target
     WHERE observation_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_sources SET project_id = target
     WHERE observation_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE consolidation_suggestions SET project_id = target
     WHERE left_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_relationships SET from_project_id = target
     WHERE from_id IN (SELECT id FROM moving) AND from_project_id = held AND team_id = team;
    UPDATE observation_relationships SET to_project_id = target
     WHERE to_id IN (SELECT id FROM moving) AND to_project_id = held AND team_id = team;
    UPDATE context_injections SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (server_session_id IN (SELECT id FROM moving) OR id IN (SELECT id FROM moving));
END $$;

-- The numbers of observations that were merged with some of the other project since; nothing is done while there are any.
CREATE OR REPLACE FUNCTION separate_project(joined uuid, team uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    target  uuid := (SELECT joined_to FROM projects WHERE id = joined AND team_id = team);
    merged  bigint[];
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving SELECT row_id FROM project_joined_rows WHERE project_id = joined AND team_id = team;
    DELETE FROM moving WHERE id IN (SELECT id FROM server_sessions WHERE project_id <> target AND team_id = team);
    INSERT INTO moving
    SELECT id FROM server_sessions WHERE origin_project_id = joined AND project_id = target AND team_id = team AND moved_at IS NULL
    ON CONFLICT DO NOTHING;
    merged := gather_moving(target, team);
    IF merged IS NOT NULL THEN
        DROP TABLE moving;
        RETURN merged;
    END IF;
    SET CONSTRAINTS ALL DEFERRED;
    UPDATE server_sessions SET project_id = joined, origin_project_id = nullif(coalesce(origin_project_id, target), joined)
     WHERE id IN (SELECT id FROM moving) AND team_id = team;
    PERFORM move_gathered(target, joined, team);
    DELETE FROM project_joined_rows WHERE project_id = joined AND team_id = team;
    DROP TABLE moving;
    UPDATE projects SET joined_to = NULL, archived_at = NULL, stays_apart = true, updated_at = now()
     WHERE id = joined AND team_id = team;
    PERFORM follow_language(joined, team);
    SET CONSTRAINTS ALL IMMEDIATE;
    RETURN '{}';
END $$;

-- Gives a session with all that belongs to it to another project; returns what separate_project() does.
CREATE FUNCTION move_session(moved uuid, target uuid, team uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = moved AND team_id = team);
    merged bigint[];
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving VALUES (moved);
    merged := gather_moving(held, team);
    IF merged IS NOT NULL THEN
        DROP TABLE moving;
        RETURN merged;
    END IF;
    SET CONSTRAINTS ALL DEFERRED;
    UPDATE server_sessions SET project_id = target, origin_project_id = nullif(coalesce(origin_project_id, held), target),
                               moved_at = now(), updated_at = now()
     WHERE id = moved AND team_id = team;
    PERFORM move_gathered(held, target, team);
    DROP TABLE moving;
    PERFORM move_entities(held, target, team, false);
    PERFORM follow_language(target, team);
    SET CONSTRAINTS ALL IMMEDIATE;
    RETURN '{}';
END $$;

REVOKE ALL ON FUNCTION gather_moving(uuid, uuid), move_gathered(uuid, uuid, uuid), move_session(uuid, uuid, uuid) FROM PUBLIC;
