-- Joining, moving and separating keep what people and the steward made, and erasing takes what the steward drew from it.
--
-- Why: a join deleted notes, names and relations that people had given to entities both projects have, and left the steward's memory
-- behind, and a move of sessions did: what people had refused was derived again. What is erased was still to be read in what the steward
-- had derived from it, in its candidates and in the proposals of its runs.
-- Entities and relations of a joined project now wait in it, unseen, until it is separated; the other one gets copies, whose ids
-- project_joined_rows has. One that is deleted there is deleted here, too. Rows of a project are listed in move_gathered() alone.
-- A derivation moves with the last of its sources, and a job of the steward with the observations that it is about.
-- The previous release keeps working.
-- How long: a moment; one index on the runs of the steward.

ALTER TABLE observation_derivations
    DROP CONSTRAINT observation_derivations_derived_observation_id_project_id__fkey,
    ADD CONSTRAINT observation_derivations_derived_fkey FOREIGN KEY (derived_observation_id, project_id, team_id)
        REFERENCES observations (id, project_id, team_id) ON DELETE SET NULL (derived_observation_id) DEFERRABLE INITIALLY IMMEDIATE;
DROP TRIGGER derivations_follow_project ON projects;
DROP FUNCTION derivations_follow_project();
CREATE INDEX steward_runs_with_proposals ON steward_runs (team_id) WHERE output_snapshot -> 'proposals' <> '[]';
COMMENT ON TABLE project_joined_rows IS
    'The rows that a joined project had, or that were made of them in the other one; they may be gone.';

-- Whether a proposal of a run names one of these rows.
CREATE FUNCTION is_proposal_of(proposal jsonb, ids uuid[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (SELECT FROM jsonb_path_query(proposal, 'strict $.**') part WHERE part #>> '{}' IN (SELECT unnest(ids)::text));
$$;

CREATE FUNCTION forget_sources(gone uuid[], team uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    derived uuid[] := ARRAY(SELECT d.derived_observation_id FROM observation_derivations d
                             WHERE d.team_id = team AND d.derived_observation_id IS NOT NULL
                               AND EXISTS (SELECT FROM unnest(d.source_observation_ids) s WHERE s IN (SELECT unnest(gone))));
BEGIN
    IF gone = '{}' THEN
        RETURN;
    END IF;
    -- What people have refused stays known; it has no words.
    DELETE FROM observation_derivations d
     WHERE d.team_id = team AND d.status NOT IN ('undone', 'skipped')
       AND EXISTS (SELECT FROM unnest(d.source_observation_ids) s WHERE s IN (SELECT unnest(gone)));
    UPDATE steward_runs r
       SET output_snapshot = jsonb_set(r.output_snapshot, '{proposals}', coalesce(
               (SELECT jsonb_agg(p) FROM jsonb_array_elements(r.output_snapshot -> 'proposals') p WHERE NOT is_proposal_of(p, gone)), '[]'))
     WHERE r.team_id = team AND r.output_snapshot -> 'proposals' <> '[]' AND is_proposal_of(r.output_snapshot -> 'proposals', gone);
    DELETE FROM observations
     WHERE team_id = team
       AND (id = ANY(derived) OR id IN (SELECT superseded_by FROM observations WHERE team_id = team AND id = ANY(derived)));
END $$;
COMMENT ON FUNCTION forget_sources IS
    'Deletes what the steward drew from these observations and events: observations, candidates, proposals of runs.';

CREATE FUNCTION erase_observation(gone uuid, team uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM forget_sources(ARRAY(
        WITH RECURSIVE merged AS (
            SELECT gone AS id
             UNION
            SELECT o.id FROM observations o JOIN merged m ON o.superseded_by = m.id WHERE o.team_id = team
        )
        SELECT id FROM merged), team);
    DELETE FROM observations WHERE id = gone AND team_id = team;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION erase_observation IS 'Deletes an observation with what was merged into it and what the steward drew from those.';

-- Adds to the table `moving`, which has ids of rows of the project `held` (of sessions, and of what else is to go), the ids of all that
-- belongs to them. What was derived goes when none of its sources stays, or with the first one that is erased. Returns the numbers of
-- observations that were merged with some that stay.
DROP FUNCTION gather_moving(uuid, uuid);
CREATE FUNCTION gather_moving(held uuid, team uuid, is_erased boolean) RETURNS bigint[] LANGUAGE plpgsql AS $$
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
    INSERT INTO moving
    SELECT row_id FROM observation_derivations d, unnest(ARRAY[d.id, d.derived_observation_id]) row_id
     WHERE d.project_id = held AND d.team_id = team AND row_id IS NOT NULL
       AND EXISTS (SELECT FROM unnest(d.source_observation_ids) s WHERE s IN (SELECT id FROM moving))
       AND (is_erased OR NOT EXISTS (
               SELECT FROM observations o
                WHERE o.id = ANY(d.source_observation_ids) AND o.project_id = held AND o.id NOT IN (SELECT id FROM moving)))
    ON CONFLICT DO NOTHING;
    RETURN (SELECT array_agg(t.number ORDER BY t.number)
              FROM observations o JOIN observations t ON t.id = o.superseded_by AND t.team_id = o.team_id
             WHERE o.project_id = held AND o.team_id = team
               AND (o.id IN (SELECT id FROM moving)) <> (t.id IN (SELECT id FROM moving)));
END $$;

-- Gives the rows of the table `moving` from one project to another: the only list of what belongs to a project. Of the sessions among
-- them the caller says by whose name they came.
CREATE OR REPLACE FUNCTION move_gathered(held uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    ANALYZE moving;
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
    UPDATE observation_derivations SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (id IN (SELECT id FROM moving) OR derived_observation_id IN (SELECT id FROM moving));
    UPDATE steward_jobs SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (id IN (SELECT id FROM moving)
            OR (source_observation_ids <> '{}'
                AND NOT EXISTS (SELECT FROM unnest(source_observation_ids) s WHERE s NOT IN (SELECT id FROM moving))));
    UPDATE steward_runs r SET project_id = target
      FROM steward_jobs j
     WHERE j.id = r.job_id AND j.team_id = r.team_id AND j.project_id = target AND r.project_id = held AND r.team_id = team;
END $$;

CREATE OR REPLACE FUNCTION join_project(joining uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving
    SELECT id FROM server_sessions WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM agent_events WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM observation_generation_jobs WHERE project_id = joining AND team_id = team
     UNION
    SELECT lane FROM generation_lanes WHERE project_id = joining AND team_id = team
     UNION
    SELECT lane FROM generation_runs WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM observations WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM context_injections WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM observation_derivations WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM steward_jobs WHERE project_id = joining AND team_id = team;
    INSERT INTO project_joined_rows (project_id, row_id, team_id) SELECT joining, id, team FROM moving ON CONFLICT DO NOTHING;
    SET CONSTRAINTS ALL DEFERRED;
    UPDATE server_sessions SET project_id = target, origin_project_id = nullif(coalesce(origin_project_id, joining), target)
     WHERE project_id = joining AND team_id = team;
    PERFORM move_gathered(joining, target, team);
    DROP TABLE moving;
    PERFORM follow_language(target, team);
    UPDATE projects SET joined_to = target, stays_apart = false, archived_at = coalesce(archived_at, now()), updated_at = now()
     WHERE id = joining AND team_id = team;
    SET CONSTRAINTS ALL IMMEDIATE;
END $$;

-- The numbers of observations that were merged with some of the other project since; nothing is done while there are any. What became
-- isolated meanwhile stays so.
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
    merged := gather_moving(target, team, false);
    IF merged IS NOT NULL THEN
        DROP TABLE moving;
        RETURN merged;
    END IF;
    SET CONSTRAINTS ALL DEFERRED;
    UPDATE server_sessions SET project_id = joined, origin_project_id = nullif(coalesce(origin_project_id, target), joined)
     WHERE id IN (SELECT id FROM moving) AND team_id = team;
    PERFORM move_gathered(target, joined, team);
    DROP TABLE moving;
    UPDATE projects SET joined_to = NULL, archived_at = NULL, stays_apart = true, updated_at = now(),
                        isolated = isolated OR (SELECT t.isolated FROM projects t WHERE t.id = target)
     WHERE id = joined AND team_id = team;
    DELETE FROM project_joined_rows WHERE project_id = joined AND team_id = team;
    PERFORM follow_language(joined, team);
    SET CONSTRAINTS ALL IMMEDIATE;
    RETURN '{}';
END $$;

CREATE OR REPLACE FUNCTION move_session(moved uuid, target uuid, team uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = moved AND team_id = team);
    merged bigint[];
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving VALUES (moved);
    merged := gather_moving(held, team, false);
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

CREATE OR REPLACE FUNCTION erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean) RETURNS jsonb
LANGUAGE plpgsql AS $$
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

-- What moved observations mention goes along, by name; when a project is joined (is_whole), what people made of entities, too, as copies:
-- the project keeps its own until it is separated. Its observations have moved by then.
CREATE OR REPLACE FUNCTION move_entities(source uuid, target uuid, team uuid, is_whole boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    made           uuid[];
    made_relations uuid[];
BEGIN
    IF is_whole THEN
        INSERT INTO project_joined_rows (project_id, row_id, team_id)
        SELECT source, t.id, team
          FROM entities s JOIN entities t ON t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
         WHERE s.project_id = source AND s.team_id = team AND t.notes IS NULL AND t.found_by <> 'people'
           AND (s.notes IS NOT NULL OR s.found_by = 'people');
        UPDATE entities t
           SET notes = CASE WHEN s.notes IS NULL OR s.notes = t.notes THEN t.notes ELSE concat_ws(E'\n\n', t.notes, s.notes) END,
               found_by = CASE WHEN s.found_by = 'people' THEN s.found_by ELSE t.found_by END
          FROM entities s
         WHERE s.project_id = source AND s.team_id = team AND t.project_id = target AND t.folded_name = s.folded_name
           AND t.type = s.type AND (s.notes IS NOT NULL OR s.found_by = 'people');
    END IF;
    WITH new AS (
        INSERT INTO entities (id, team_id, project_id, type, name, folded_name, notes, found_by)
        SELECT gen_random_uuid(), team, target, e.type, e.name, e.folded_name, e.notes, e.found_by
          FROM entities e
         WHERE e.project_id = source AND e.team_id = team
           AND (is_whole OR EXISTS (SELECT FROM entity_mentions m JOIN observations o ON o.id = m.observation_id
                                     WHERE m.named_id = e.id AND o.project_id = target))
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT array_agg(id) INTO made FROM new;
    UPDATE entities t SET merged_into = coalesce(ti.merged_into, ti.id)
      FROM entities s
      JOIN entities si ON si.id = s.merged_into
      JOIN entities ti ON ti.project_id = target AND ti.folded_name = si.folded_name AND ti.type = si.type
     WHERE s.project_id = source AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
       AND t.id = ANY(made) AND t.id <> coalesce(ti.merged_into, ti.id);
    WITH new AS (
        INSERT INTO entity_relations (id, team_id, project_id, from_id, to_id, label, created_at)
        SELECT gen_random_uuid(), team, target, nf.id, nt.id, r.label, r.created_at
          FROM entity_relations r
          JOIN entities f ON f.id = r.from_id
          JOIN entities nf ON nf.project_id = target AND nf.folded_name = f.folded_name AND nf.type = f.type
          JOIN entities t ON t.id = r.to_id
          JOIN entities nt ON nt.project_id = target AND nt.folded_name = t.folded_name AND nt.type = t.type
         WHERE r.project_id = source AND r.team_id = team AND nf.id <> nt.id
           AND (is_whole OR EXISTS (SELECT FROM entity_relation_evidence v JOIN observations o ON o.id = v.observation_id
                                     WHERE v.relation_id = r.id AND o.project_id = target))
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT array_agg(id) INTO made_relations FROM new;
    IF is_whole THEN
        INSERT INTO project_joined_rows (project_id, row_id, team_id) SELECT source, unnest(made || made_relations), team;
    END IF;
    INSERT INTO entity_relation_evidence (relation_id, observation_id, project_id, team_id)
    SELECT n.id, v.observation_id, target, team
      FROM entity_relation_evidence v
      JOIN observations o ON o.id = v.observation_id AND o.project_id = target
      JOIN entity_relations r ON r.id = v.relation_id
      JOIN entities f ON f.id = r.from_id
      JOIN entities nf ON nf.project_id = target AND nf.folded_name = f.folded_name AND nf.type = f.type
      JOIN entities t ON t.id = r.to_id
      JOIN entities nt ON nt.project_id = target AND nt.folded_name = t.folded_name AND nt.type = t.type
      JOIN entity_relations n ON n.from_id = nf.id AND n.to_id = nt.id AND n.label = r.label
     WHERE v.project_id = source AND v.team_id = team
    ON CONFLICT DO NOTHING;
    DELETE FROM entity_relation_evidence v USING observations o
     WHERE v.project_id = source AND v.team_id = team AND o.id = v.observation_id AND o.project_id = target;
    UPDATE entity_mentions m SET project_id = target, named_id = n.id, entity_id = coalesce(n.merged_into, n.id)
      FROM observations o, entities e, entities n
     WHERE m.project_id = source AND m.team_id = team AND o.id = m.observation_id AND o.project_id = target
       AND e.id = m.named_id AND n.project_id = target AND n.folded_name = e.folded_name AND n.type = e.type;
    PERFORM count_entity_mentions(ARRAY(SELECT id FROM entities WHERE project_id IN (source, target) AND team_id = team));
    DELETE FROM entities e
     WHERE e.project_id = ANY(CASE WHEN is_whole THEN ARRAY[target] ELSE ARRAY[source, target] END) AND e.team_id = team
       AND e.mention_count = 0 AND e.found_by <> 'people'
       AND e.merged_into IS NULL AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id);
END $$;

-- A project that is separated has its entities with what people changed of their copies. A copy is found by rules again, or goes.
CREATE FUNCTION give_entities_back(source uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    copies uuid[] := ARRAY(SELECT j.row_id FROM project_joined_rows j
                            WHERE j.project_id = target AND j.team_id = team
                              AND (EXISTS (SELECT FROM entities e WHERE e.id = j.row_id)
                                   OR EXISTS (SELECT FROM entity_relations r WHERE r.id = j.row_id)));
BEGIN
    WITH changed AS (
        UPDATE entities t SET notes = s.notes, found_by = CASE WHEN s.found_by = 'people' THEN s.found_by ELSE t.found_by END
          FROM entities s
         WHERE s.project_id = source AND s.team_id = team
           AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
           AND CASE WHEN s.id = ANY(copies)
                    THEN s.notes IS DISTINCT FROM t.notes OR (s.found_by = 'people' AND t.found_by <> 'people')
                    ELSE t.notes IS NOT NULL AND s.notes IS DISTINCT FROM t.notes
                         AND right(s.notes, length(t.notes) + 2) IS DISTINCT FROM E'\n\n' || t.notes END
        RETURNING s.id
    )
    UPDATE entities s
       SET notes = CASE WHEN s.id <> ALL(copies) THEN left(s.notes, -length(t.notes) - 2) END,
           found_by = CASE WHEN s.id <> ALL(copies) THEN s.found_by ELSE 'rules' END
      FROM entities t
     WHERE s.project_id = source AND s.team_id = team AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
       AND s.id NOT IN (SELECT id FROM changed)
       AND CASE WHEN s.id = ANY(copies)
                THEN NOT EXISTS (SELECT FROM entity_relations r WHERE s.id IN (r.from_id, r.to_id) AND r.id <> ALL(copies))
                     AND NOT EXISTS (SELECT FROM entities e JOIN projects p ON p.id = e.project_id AND p.joined_to = source
                                      WHERE e.folded_name = s.folded_name AND e.type = s.type)
                ELSE right(s.notes, length(t.notes) + 2) = E'\n\n' || t.notes END;
    PERFORM move_entities(source, target, team, false);
    DELETE FROM entity_relations r
     WHERE r.project_id = source AND r.team_id = team AND r.id = ANY(copies)
       AND NOT EXISTS (SELECT FROM entity_relation_evidence v WHERE v.relation_id = r.id);
    DELETE FROM entities e
     WHERE e.project_id = source AND e.team_id = team AND e.id = ANY(copies) AND e.merged_into IS NOT NULL
       AND NOT EXISTS (SELECT FROM entity_mentions m WHERE m.named_id = e.id);
    DELETE FROM entities e
     WHERE e.project_id = source AND e.team_id = team AND e.id = ANY(copies) AND e.mention_count = 0 AND e.found_by <> 'people'
       AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id);
END $$;

CREATE OR REPLACE FUNCTION entities_follow_project() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.joined_to IS NULL THEN
        PERFORM give_entities_back(OLD.joined_to, NEW.id, NEW.team_id);
    ELSE
        PERFORM move_entities(NEW.id, NEW.joined_to, NEW.team_id, OLD.joined_to IS NULL);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION joined_entities_go_along() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM old_rows) THEN
        RETURN NULL;
    END IF;
    DELETE FROM entities e USING old_rows o, projects p
     WHERE p.joined_to = o.project_id AND p.team_id = o.team_id
       AND e.project_id = p.id AND e.team_id = o.team_id AND e.folded_name = o.folded_name AND e.type = o.type;
    RETURN NULL;
END $$;
CREATE TRIGGER joined_entities_go_along AFTER DELETE ON entities REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION joined_entities_go_along();
COMMENT ON TRIGGER joined_entities_go_along ON entities IS 'What is deleted after a join does not come back when it is separated.';

CREATE FUNCTION joined_relations_go_along() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM old_rows) THEN
        RETURN NULL;
    END IF;
    DELETE FROM entity_relations r
     USING old_rows o, projects p, entities f, entities t, entities old_f, entities old_t
     WHERE p.joined_to = o.project_id AND p.team_id = o.team_id AND old_f.id = o.from_id AND old_t.id = o.to_id
       AND f.project_id = p.id AND f.folded_name = old_f.folded_name AND f.type = old_f.type
       AND t.project_id = p.id AND t.folded_name = old_t.folded_name AND t.type = old_t.type
       AND r.from_id = f.id AND r.to_id = t.id AND r.label = o.label AND r.team_id = o.team_id;
    RETURN NULL;
END $$;
CREATE TRIGGER joined_relations_go_along AFTER DELETE ON entity_relations REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION joined_relations_go_along();

REVOKE ALL ON FUNCTION gather_moving(uuid, uuid, boolean), give_entities_back(uuid, uuid, uuid) FROM PUBLIC;
