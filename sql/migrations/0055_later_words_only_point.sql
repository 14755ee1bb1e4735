-- What users said is no longer hidden by their later words, and only equal texts are the same.
--
-- Why: later words took out what had been said about something else, because both had a word in common, and a week later it was deleted.
-- What was hidden so is shown again, also where it was merged for its words by itself; the later one says which it may replace. What
-- people merged stays merged. The audit log has a row for each project (`observations.revived`), and `cmserver doctor` counts them for a
-- week. What was deleted before stays deleted: a backup has it.
-- The hash of a text no longer takes `git branch -d` and `git branch -D` for the same: only spaces, Markdown, and punctuation at the ends
-- do not count.
-- How long: some thirty seconds per million observations that were written by hand, for their index; writing them waits meanwhile.

CREATE FUNCTION revive_what_words_replaced() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    revived integer;
BEGIN
    CREATE TEMPORARY TABLE replaced_by_words AS
        SELECT o.id, o.number, o.team_id, o.project_id, t.id AS target_id, t.number AS target_number, v.id AS version_id
          FROM observation_versions v
          JOIN observations t ON t.id = v.observation_id AND t.team_id = v.team_id
          JOIN observations o ON o.superseded_by = t.id AND o.team_id = t.team_id AND o.id = ANY(v.source_ids)
         WHERE v.action = 'merged' AND v.measured_by = 'words' AND v.performed_by = 'system' AND v.undone_at IS NULL;
    UPDATE observations o SET superseded_by = NULL, superseded_at = NULL FROM replaced_by_words r WHERE o.id = r.id;
    UPDATE observations t
       SET merged_from = ARRAY(SELECT id FROM unnest(t.merged_from) WITH ORDINALITY AS m(id, place)
                                WHERE id NOT IN (SELECT r.id FROM replaced_by_words r) ORDER BY place),
           metadata = t.metadata - 'replaces'
     WHERE t.id IN (SELECT target_id FROM replaced_by_words);
    -- Of two the later one says that it may replace the earlier, whichever of them the other was merged into.
    UPDATE observations o SET metadata = o.metadata || jsonb_build_object('mayReplace', m.earlier)
      FROM (SELECT CASE WHEN number > target_number THEN id ELSE target_id END AS later, max(least(number, target_number)) AS earlier
              FROM replaced_by_words GROUP BY 1) m
     WHERE o.id = m.later;
    DELETE FROM observation_relationships l USING replaced_by_words r
     WHERE l.from_id = r.target_id AND l.to_id = r.id AND l.relationship = 'SUPERSEDES' AND l.team_id = r.team_id;
    UPDATE observation_versions v SET undone_at = now(), before = NULL WHERE v.id IN (SELECT version_id FROM replaced_by_words);
    INSERT INTO audit_log (team_id, project_id, actor_id, action, resource_type, resource_id, details)
    SELECT team_id, project_id, 'system', 'observations.revived', 'project', project_id::text,
           jsonb_build_object('numbers', jsonb_agg(number ORDER BY number))
      FROM (SELECT DISTINCT team_id, project_id, number FROM replaced_by_words) n GROUP BY team_id, project_id;
    SELECT count(DISTINCT id) INTO revived FROM replaced_by_words;
    DROP TABLE replaced_by_words;
    RETURN revived;
END $$;
REVOKE ALL ON FUNCTION revive_what_words_replaced() FROM PUBLIC;
COMMENT ON FUNCTION revive_what_words_replaced() IS
    'Shows again what was hidden by later words alone, marked beside them; returns how many observations that were.';
SELECT revive_what_words_replaced();

DROP INDEX observations_hash;
CREATE OR REPLACE FUNCTION observation_hash(title text, subtitle text, narrative text, facts text[], content text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    parts text[] := array_remove(ARRAY[title, subtitle, narrative] || facts, NULL);
    part text;
    said text := '';
BEGIN
    IF num_nonnulls(title, subtitle, narrative, facts) = 0 THEN
        parts := ARRAY[content];
    END IF;
    FOREACH part IN ARRAY parts LOOP
        -- Headings, quotes, and dashes of lists at the beginning of a line; `- [x]` keeps its box, and `- 5` its minus.
        part := regexp_replace(part, '^[ \t]*(#{1,6}[ \t]+|>[ \t]+|[-*][ \t]+(?=[^\d\s]))+', '', 'gn');
        part := regexp_replace(part, '(?<![A-Za-z0-9*])\*\*([^*\s]([^*\n]*[^*\s])?)\*\*(?![A-Za-z0-9*])', '\1', 'g');
        part := regexp_replace(part, '(?<![A-Za-z0-9*])\*(\w([^*\n]*\w)?)\*(?![A-Za-z0-9*])', '\1', 'g');
        part := btrim(regexp_replace(part, '\s+', ' ', 'g'));
        part := regexp_replace(part, '^["“„«]\s*([^"“”„«»]*?)\s*["”“»]$', '\1');
        -- Before the marks of code go: the dot of `ruff check .` is none of the sentence.
        part := regexp_replace(part, '([\w`*)\]"”»])( ?[:;!]|[.,…。！])+$', '\1');
        said := said || E'\n' || replace(part, '`', '');
    END LOOP;
    RETURN sha256(convert_to(said, 'UTF8'));
END $$;
CREATE INDEX observations_hash ON observations (project_id, observation_hash(title, subtitle, narrative, facts, content))
    WHERE superseded_at IS NULL AND kind = 'manual';
