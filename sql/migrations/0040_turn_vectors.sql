-- Find turns by meaning, and count them apart from observations.
--
-- Why: a turn was found by its words only. Its vector now stands in observation_embeddings, beside those of observations: it waits there
-- from the moment the turn has ended, in the same transaction, and the same worker embeds it, tries again, and gives up. A row belongs to
-- an observation or to a turn. Old turns are queued by the worker, the newest first, behind what is new.
-- observation_counters says how many of a team's numbers are turns': a search of the whole team took those for observations, so all
-- words seemed rarer than they are.
-- How long: three indexes of observation_embeddings are made anew, some two seconds per million rows, while nothing is embedded; turns
-- get one index more, a second per million.

ALTER TABLE observation_counters ADD COLUMN turns bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN observation_counters.turns IS 'How many of the numbers were given to turns.';
UPDATE observation_counters c SET turns = t.turns
  FROM (SELECT team_id, count(*) AS turns FROM turns GROUP BY team_id) t WHERE t.team_id = c.team_id;

ALTER TABLE turns ADD CONSTRAINT turns_of_project UNIQUE (id, project_id, team_id);
ALTER TABLE observation_embeddings DROP CONSTRAINT observation_embeddings_pkey;
ALTER TABLE observation_embeddings
    ALTER COLUMN observation_id DROP NOT NULL,
    ADD COLUMN turn_id uuid,
    ADD CONSTRAINT observation_embeddings_of_one CHECK (num_nonnulls(observation_id, turn_id) = 1),
    ADD CONSTRAINT observation_embeddings_turn_id_project_id_team_id_fkey FOREIGN KEY (turn_id, project_id, team_id)
        REFERENCES turns (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;
CREATE UNIQUE INDEX observation_embeddings_of_observation ON observation_embeddings (observation_id, model_id)
 WHERE observation_id IS NOT NULL;
CREATE UNIQUE INDEX observation_embeddings_of_turn ON observation_embeddings (turn_id, model_id) WHERE turn_id IS NOT NULL;
DROP INDEX observation_embeddings_scope;
CREATE INDEX observation_embeddings_scope ON observation_embeddings (team_id, model_id, project_id)
 WHERE embedding IS NOT NULL AND observation_id IS NOT NULL;
CREATE INDEX observation_embeddings_turn_scope ON observation_embeddings (team_id, model_id, project_id)
 WHERE embedding IS NOT NULL AND turn_id IS NOT NULL;
COMMENT ON TABLE observation_embeddings IS
    'The place of each observation and each turn among meanings, by model. Without an embedding it waits for one.';

CREATE FUNCTION turn_waits_for_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.ended_at IS NOT NULL AND (OLD.prompt, OLD.reply) IS NOT DISTINCT FROM (NEW.prompt, NEW.reply) THEN
        RETURN NULL;
    END IF;
    INSERT INTO observation_embeddings AS e (turn_id, model_id, team_id, project_id)
    SELECT NEW.id, m.id, NEW.team_id, NEW.project_id FROM embedding_models m WHERE m.state <> 'retired'
    ON CONFLICT (turn_id, model_id) WHERE turn_id IS NOT NULL DO UPDATE
       SET is_outdated = e.embedding IS NOT NULL, attempts = 0, next_at = now(), last_error = NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER turns_to_embed AFTER INSERT OR UPDATE OF prompt, reply, ended_at ON turns FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION turn_waits_for_embedding();

COMMENT ON COLUMN embedding_models.backfilled_to IS
    'Down to which observation or turn, by id, earlier ones have their rows in observation_embeddings; of a retired model: have none any more.';
UPDATE embedding_models SET backfilled_to = NULL, is_backfilled = false WHERE state <> 'retired';

-- The functions that move and delete sessions, with the vectors of their turns; otherwise as they were.
CREATE OR REPLACE FUNCTION move_gathered(held uuid, target uuid, team uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
     WHERE project_id = held AND team_id = team
       AND (observation_id IN (SELECT id FROM moving)
            OR turn_id IN (SELECT id FROM turns WHERE team_id = team AND server_session_id IN (SELECT id FROM moving)));
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

CREATE OR REPLACE FUNCTION erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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
