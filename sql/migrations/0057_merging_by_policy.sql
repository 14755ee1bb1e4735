-- A team says what Contextify's settings said: lifetimes, thresholds, and whether near memories are merged by themselves.
--
-- Why: who moves from Contextify has chosen them, and found our constants. They stand in the policy of retention, of a team or a project:
-- what is not said is as it was. `autoMergeAbove` is off: then only equal texts are merged by themselves.
-- How long: a moment.

CREATE OR REPLACE FUNCTION is_retention_policy(policy jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN jsonb_typeof(policy) = 'object' THEN
               policy - ARRAY['observationsDays', 'minImportance', 'promoteAccesses', 'eventsDays', 'jobLogDays', 'receiptsDays',
                              'auditDays', 'defaultTtlSeconds', 'extendFactor', 'promoteImportance', 'cleanupSeconds',
                              'suggestAbove', 'autoMergeAbove', 'mergeStrategy'] = '{}'
               AND (SELECT bool_and(CASE jsonb_typeof(coalesce(policy -> field.name, 'null'))
                                         WHEN 'null' THEN true
                                         WHEN 'number' THEN (policy ->> field.name)::numeric BETWEEN field.least AND field.most
                                              AND (field.is_share OR scale((policy ->> field.name)::numeric) = 0)
                                         ELSE false END)
                      FROM (VALUES ('observationsDays', 0, 36500, false), ('minImportance', 0, 1, true),
                                   ('promoteAccesses', 1, 1000000, false), ('eventsDays', 0, 36500, false),
                                   ('jobLogDays', 0, 36500, false), ('receiptsDays', 0, 36500, false),
                                   ('auditDays', 0, 36500, false), ('defaultTtlSeconds', 1, 3155760000, false),
                                   ('extendFactor', 0, 100, true), ('promoteImportance', 0, 1, true),
                                   ('cleanupSeconds', 1, 31536000, false), ('suggestAbove', 0, 1, true),
                                   ('autoMergeAbove', 0, 1, true)) AS field(name, least, most, is_share))
               AND CASE jsonb_typeof(coalesce(policy -> 'mergeStrategy', 'null'))
                        WHEN 'null' THEN true
                        WHEN 'string' THEN policy ->> 'mergeStrategy' IN ('latest_wins', 'append', 'smart_merge')
                        ELSE false END
           ELSE false END;
END;
