-- Entities are found in turns that clients of the memory-service write, by a job of the outbox; such a turn mentions them.
--
-- Why: what they store are turns, so nothing that their users talk about had a name here. A mention belongs to an observation or to a
-- turn; place_id is either.
-- The previous release keeps working: it shows of an entity the mentions by observations. A worker of it would ask a model about the
-- new jobs as about an event without a text; clients of the memory-service make them.
-- How long: entity_mentions is written anew with its indexes, some ten seconds for a million; the check of jobs is tried on all of
-- them, a second for a million.

ALTER TABLE entity_mentions DROP CONSTRAINT entity_mentions_pkey;
DROP INDEX entity_mentions_newest;
ALTER TABLE entity_mentions
    ALTER COLUMN observation_id DROP NOT NULL,
    ADD COLUMN turn_id uuid,
    ADD COLUMN place_id uuid NOT NULL GENERATED ALWAYS AS (coalesce(observation_id, turn_id)) STORED,
    ADD CONSTRAINT entity_mentions_of_one CHECK (num_nonnulls(observation_id, turn_id) = 1),
    ADD CONSTRAINT entity_mentions_turn_id_project_id_team_id_fkey FOREIGN KEY (turn_id, project_id, team_id)
        REFERENCES turns (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE INITIALLY IMMEDIATE;
CREATE UNIQUE INDEX entity_mentions_of_observation ON entity_mentions (observation_id, named_id) WHERE observation_id IS NOT NULL;
CREATE UNIQUE INDEX entity_mentions_of_turn ON entity_mentions (turn_id, named_id) WHERE turn_id IS NOT NULL;
CREATE INDEX entity_mentions_newest ON entity_mentions (entity_id, seen_at, place_id) INCLUDE (team_id);
CREATE INDEX entity_mentions_place ON entity_mentions (place_id) INCLUDE (entity_id, team_id);
COMMENT ON TABLE entity_mentions IS 'Which observation or turn mentions which entity, and by which of its names.';
COMMENT ON COLUMN entity_mentions.place_id IS 'The observation or the turn.';
COMMENT ON COLUMN entity_mentions.seen_at IS 'The time of the observation or the turn.';
COMMENT ON COLUMN entities.mention_count IS
    'The observations and turns that mention it or one of its aliases; 0 for an alias. Triggers keep it and the times.';

CREATE OR REPLACE FUNCTION count_entity_mentions(ids uuid[]) RETURNS void LANGUAGE sql AS $$
    WITH counted AS (
        SELECT e.id, count(DISTINCT m.place_id)::integer AS mentions, min(m.seen_at) AS first_at, max(m.seen_at) AS last_at
          FROM entities e LEFT JOIN entity_mentions m ON m.entity_id = e.id
         WHERE e.id = ANY (ids) GROUP BY e.id
    )
    UPDATE entities e
       SET mention_count = c.mentions, first_seen_at = coalesce(c.first_at, e.first_seen_at),
           last_seen_at = coalesce(c.last_at, e.last_seen_at)
      FROM counted c WHERE c.id = e.id;
$$;

CREATE OR REPLACE FUNCTION entity_mentions_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE entities e
       SET mention_count = e.mention_count + n.mentions,
           first_seen_at = CASE WHEN e.mention_count = 0 THEN n.first_at ELSE least(e.first_seen_at, n.first_at) END,
           last_seen_at = CASE WHEN e.mention_count = 0 THEN n.last_at ELSE greatest(e.last_seen_at, n.last_at) END
      FROM (SELECT entity_id, min(seen_at) AS first_at, max(seen_at) AS last_at,
                   -- What has two names of an entity counts once.
                   (count(DISTINCT place_id) - count(DISTINCT place_id) FILTER (
                       WHERE EXISTS (SELECT FROM entity_mentions o
                                      WHERE o.entity_id = r.entity_id AND o.seen_at = r.seen_at AND o.place_id = r.place_id
                                        AND NOT EXISTS (SELECT FROM new_rows w WHERE w.place_id = o.place_id
                                                           AND w.named_id = o.named_id))))::integer AS mentions
              FROM new_rows r GROUP BY entity_id) n
     WHERE e.id = n.entity_id;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION entity_mentions_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE entities e
       SET mention_count = greatest(0, e.mention_count - o.mentions),
           first_seen_at = coalesce((SELECT min(m.seen_at) FROM entity_mentions m WHERE m.entity_id = e.id), e.first_seen_at),
           last_seen_at = coalesce((SELECT max(m.seen_at) FROM entity_mentions m WHERE m.entity_id = e.id), e.last_seen_at)
      FROM (SELECT entity_id,
                   count(DISTINCT place_id) FILTER (
                       WHERE NOT EXISTS (SELECT FROM entity_mentions m
                                          WHERE m.entity_id = r.entity_id AND m.seen_at = r.seen_at
                                            AND m.place_id = r.place_id))::integer AS mentions
              FROM old_rows r GROUP BY entity_id) o
     WHERE e.id = o.entity_id;
    DELETE FROM entities e
     USING (SELECT DISTINCT named_id FROM old_rows) o
     WHERE e.id = o.named_id AND e.found_by <> 'people' AND e.merged_into IS NULL
       AND NOT EXISTS (SELECT FROM entity_mentions m WHERE m.entity_id = e.id)
       AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id);
    RETURN NULL;
END $$;

-- As before, with the mentions of turns.
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
           AND (is_whole
                OR EXISTS (SELECT FROM entity_mentions m JOIN observations o ON o.id = m.observation_id
                            WHERE m.named_id = e.id AND o.project_id = target)
                OR EXISTS (SELECT FROM entity_mentions m JOIN turns t ON t.id = m.turn_id
                            WHERE m.named_id = e.id AND t.project_id = target))
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
    UPDATE entity_mentions m SET project_id = target, named_id = n.id, entity_id = coalesce(n.merged_into, n.id)
      FROM turns t, entities e, entities n
     WHERE m.project_id = source AND m.team_id = team AND t.id = m.turn_id AND t.project_id = target
       AND e.id = m.named_id AND n.project_id = target AND n.folded_name = e.folded_name AND n.type = e.type;
    PERFORM count_entity_mentions(ARRAY(SELECT id FROM entities WHERE project_id IN (source, target) AND team_id = team));
    DELETE FROM entities e
     WHERE e.project_id = ANY(CASE WHEN is_whole THEN ARRAY[target] ELSE ARRAY[source, target] END) AND e.team_id = team
       AND e.mention_count = 0 AND e.found_by <> 'people'
       AND e.merged_into IS NULL AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id);
END $$;

ALTER TABLE observation_generation_jobs DROP CONSTRAINT observation_generation_jobs_source_type_check;
ALTER TABLE observation_generation_jobs ADD CONSTRAINT observation_generation_jobs_source_type_check
    CHECK (source_type IN ('agent_event', 'session_summary', 'observation_reindex', 'turn')) NOT VALID;
ALTER TABLE observation_generation_jobs VALIDATE CONSTRAINT observation_generation_jobs_source_type_check;
ALTER TABLE observation_generation_jobs DROP CONSTRAINT observation_generation_jobs_check;
ALTER TABLE observation_generation_jobs ADD CONSTRAINT observation_generation_jobs_check
    CHECK ((source_type = 'agent_event' AND agent_event_id IS NOT NULL AND source_id = agent_event_id)
        OR (source_type = 'session_summary' AND agent_event_id IS NULL AND (server_session_id IS NULL OR source_id = server_session_id))
        OR (source_type IN ('observation_reindex', 'turn') AND agent_event_id IS NULL)) NOT VALID;
ALTER TABLE observation_generation_jobs VALIDATE CONSTRAINT observation_generation_jobs_check;

ALTER TABLE generation_runs DROP CONSTRAINT generation_runs_kind_check;
ALTER TABLE generation_runs ADD CONSTRAINT generation_runs_kind_check
    CHECK (kind IN ('observations', 'summary', 'merge', 'guard', 'derive', 'overview', 'entities')) NOT VALID;
ALTER TABLE generation_runs VALIDATE CONSTRAINT generation_runs_kind_check;
