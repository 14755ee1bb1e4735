-- Names of projects are composed (NFC) and have no invisible characters.
--
-- Why: the same folder is spelled in two ways by two systems, and two names that look alike were two projects. New names are cleaned as
-- they come in (clean_name in cmserver/base/lookalikes.py); here those that are there get the same. The spelling of before stays as an
-- alias. Where two projects of a team would get one name, whichever has it, or else is older, is called so, and the other one is left
-- as it is and found by its own spelling.
-- The previous release keeps working: it finds the projects by either spelling.
-- How long: a moment; it looks at each project once.

CREATE FUNCTION clean_name(said text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN getdatabaseencoding() <> 'UTF8' THEN said ELSE
        regexp_replace(normalize(regexp_replace(regexp_replace(regexp_replace(
            normalize(said, NFC),
            '\u001b\[[0-9;:?]*[ -/]*[@-~]|(?:(?![\t\n\u000b\u000c\r\u0085])[\u0001-\u001f\u007f-\u009f])'
            '|[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff'
            '\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]', '', 'g'),
            '(?<![\u0600-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefe\U00010a00-\U00011fff\u2190-\u2bff\u3030'
            '\u303d\u3297\u3299\U0001f000-\U0001faff])[\u200c\u200d]+'
            '|[\u200c\u200d]+(?![\u0600-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefe\U00010a00-\U00011fff'
            '\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])', '', 'g'),
            '[\t\n\u000b\u000c\r\u0085\u2028\u2029]+', ' ', 'g'), NFC),
            '^[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+|[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+$', '', 'g') END
$$;

WITH older AS (
    SELECT DISTINCT ON (p.team_id, n.clean) p.id, p.team_id, p.canonical_id AS was, n.clean
      FROM projects p CROSS JOIN LATERAL (SELECT clean_name(p.canonical_id) AS clean) n
     WHERE n.clean <> p.canonical_id AND length(n.clean) BETWEEN 1 AND 500
       AND NOT EXISTS (SELECT FROM projects o WHERE o.team_id = p.team_id AND o.canonical_id = n.clean)
       AND NOT EXISTS (SELECT FROM project_aliases a WHERE a.team_id = p.team_id AND a.alias = n.clean)
     ORDER BY p.team_id, n.clean, p.created_at, p.id
), renamed AS (
    UPDATE projects p SET canonical_id = o.clean, updated_at = now() FROM older o WHERE p.id = o.id AND p.team_id = o.team_id
    RETURNING p.id, p.team_id, o.was
)
INSERT INTO project_aliases (team_id, alias, project_id) SELECT team_id, was, id FROM renamed ON CONFLICT DO NOTHING;

INSERT INTO project_aliases (team_id, alias, project_id)
SELECT DISTINCT ON (a.team_id, n.clean) a.team_id, n.clean, a.project_id
  FROM project_aliases a CROSS JOIN LATERAL (SELECT clean_name(a.alias) AS clean) n
 WHERE n.clean <> a.alias AND length(n.clean) BETWEEN 1 AND 500
   AND NOT EXISTS (SELECT FROM projects p WHERE p.team_id = a.team_id AND p.canonical_id = n.clean)
 ORDER BY a.team_id, n.clean, a.created_at
ON CONFLICT DO NOTHING;

UPDATE projects SET name = clean_name(name) WHERE clean_name(name) NOT IN (name, '');

DROP FUNCTION clean_name(text);
