-- One session is deleted with all that was drawn from it.
--
-- Why: people want a conversation gone, not a project. What goes is counted first, by the same function. Observations that were merged
-- with some of other sessions stop it: their texts are in both, so those merges are undone first.
-- How long: instant.

CREATE FUNCTION erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = gone AND team_id = team);
    merged bigint[];
    counts jsonb;
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving VALUES (gone);
    merged := gather_moving(held, team);
    counts := jsonb_build_object(
        'observations', (SELECT count(*) FROM observations
                          WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)),
        'vectors', (SELECT count(*) FROM observation_embeddings
                     WHERE project_id = held AND team_id = team AND observation_id IN (SELECT id FROM moving)),
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

REVOKE ALL ON FUNCTION erase_session(uuid, uuid, boolean, boolean) FROM PUBLIC;
