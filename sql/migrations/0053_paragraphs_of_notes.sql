-- A project that is separated gets its own notes back and not those of another joined one, also where the project that stays had none.
-- Quick: functions only.

-- The notes without the part, which stands in them as whole paragraphs; unchanged where it does not, null where nothing is left.
CREATE FUNCTION cut_paragraphs(notes text, part text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN place = 0 THEN notes
                ELSE nullif(concat_ws(E'\n\n', nullif(left(notes, greatest(place - 3, 0)), ''),
                                      nullif(substr(notes, place + length(part) + 2), '')), '') END
      FROM (SELECT coalesce(position(E'\n\n' || part || E'\n\n' IN E'\n\n' || notes || E'\n\n'), 0) AS place) p
$$;

CREATE OR REPLACE FUNCTION give_entities_back(source uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    copies uuid[] := ARRAY(SELECT j.row_id FROM project_joined_rows j
                            WHERE j.project_id = target AND j.team_id = team
                              AND (EXISTS (SELECT FROM entities e WHERE e.id = j.row_id)
                                   OR EXISTS (SELECT FROM entity_relations r WHERE r.id = j.row_id)));
    -- Those that another joined project has, too: of their notes only a part is the target's.
    shared uuid[] := ARRAY(SELECT s.id FROM entities s
                            WHERE s.id = ANY(copies)
                              AND EXISTS (SELECT FROM entities e JOIN projects p ON p.id = e.project_id AND p.joined_to = source
                                           WHERE p.id <> target AND e.folded_name = s.folded_name AND e.type = s.type));
BEGIN
    WITH changed AS (
        UPDATE entities t SET notes = s.notes, found_by = CASE WHEN s.found_by = 'people' THEN s.found_by ELSE t.found_by END
          FROM entities s
         WHERE s.project_id = source AND s.team_id = team
           AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
           AND CASE WHEN s.id = ANY(shared)
                    THEN t.notes IS NOT NULL AND cut_paragraphs(s.notes, t.notes) IS NOT DISTINCT FROM s.notes
                    WHEN s.id = ANY(copies)
                    THEN s.notes IS DISTINCT FROM t.notes OR (s.found_by = 'people' AND t.found_by <> 'people')
                    ELSE t.notes IS NOT NULL AND s.notes IS DISTINCT FROM t.notes
                         AND position(E'\n\n' || t.notes || E'\n\n' IN coalesce(s.notes, '') || E'\n\n') = 0 END
        RETURNING s.id
    )
    UPDATE entities s
       SET notes = CASE WHEN s.id <> ALL(copies)
                        THEN overlay(s.notes PLACING '' FROM position(E'\n\n' || t.notes || E'\n\n' IN s.notes || E'\n\n')
                                     FOR length(t.notes) + 2)
                        WHEN s.id = ANY(shared) THEN cut_paragraphs(s.notes, t.notes) END,
           found_by = CASE WHEN s.id <> ALL(copies) OR s.id = ANY(shared) THEN s.found_by ELSE 'rules' END
      FROM entities t
     WHERE s.project_id = source AND s.team_id = team AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
       AND s.id NOT IN (SELECT id FROM changed)
       AND CASE WHEN s.id = ANY(shared)
                THEN t.notes IS NOT NULL
                     AND NOT EXISTS (SELECT FROM entities e JOIN projects p ON p.id = e.project_id AND p.joined_to = source
                                      WHERE p.id <> target AND e.folded_name = s.folded_name AND e.type = s.type
                                        AND e.notes = t.notes)
                WHEN s.id = ANY(copies)
                THEN NOT EXISTS (SELECT FROM entity_relations r WHERE s.id IN (r.from_id, r.to_id) AND r.id <> ALL(copies))
                ELSE position(E'\n\n' || t.notes || E'\n\n' IN s.notes || E'\n\n') > 0 END;
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
REVOKE ALL ON FUNCTION cut_paragraphs(text, text) FROM PUBLIC;
