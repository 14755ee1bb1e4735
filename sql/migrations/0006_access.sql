-- Teams, members, projects and keys are managed through the API: what it needs to store, and what the tenant's role may do for it.
--
-- Why: a key is rotated with an overlap (the old one names its successor), shows when it was last used, and may have limits of its
-- own; a team may have limits, too (NULL: none). Teams and projects say when observations are made of their events. The audit log is
-- read page by page, newest first, by team or by project: its rows' ids are in that order, so they are the index.
-- The previous release keeps working: it knows none of the new columns and needs none.
-- How long: instant but for the audit log's three indexes, some seconds per million rows; writing waits meanwhile.

-- What psql writes there must be what the program reads.
CREATE FUNCTION is_generation_policy(policy jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN jsonb_typeof(policy) = 'object' THEN
               policy - ARRAY['mode', 'debounceSeconds', 'skipEventTypes', 'skipTools'] = '{}'
               AND coalesce(policy ->> 'mode', 'burst') IN ('per_event', 'burst', 'at_end')
               AND CASE WHEN jsonb_typeof(coalesce(policy -> 'debounceSeconds', '0')) = 'number'
                        THEN coalesce((policy ->> 'debounceSeconds')::numeric, 0) BETWEEN 0 AND 3600 ELSE false END
               AND jsonb_typeof(coalesce(policy -> 'skipEventTypes', '[]')) = 'array'
               AND jsonb_typeof(coalesce(policy -> 'skipTools', '[]')) = 'array'
               AND NOT jsonb_path_exists(policy, '$.skipEventTypes[*] ? (@.type() != "string")')
               AND NOT jsonb_path_exists(policy, '$.skipTools[*] ? (@.type() != "string")')
           ELSE false END;
END;

ALTER TABLE teams
    ADD COLUMN generation_policy   jsonb NOT NULL DEFAULT '{}' CHECK (is_generation_policy(generation_policy)),
    ADD COLUMN requests_per_minute integer CHECK (requests_per_minute > 0),
    ADD COLUMN events_per_month    bigint CHECK (events_per_month >= 0);
ALTER TABLE projects
    ADD COLUMN generation_policy jsonb NOT NULL DEFAULT '{}' CHECK (is_generation_policy(generation_policy));
ALTER TABLE api_keys
    ADD COLUMN last_used_at        timestamptz,
    ADD COLUMN replaced_by         uuid,
    ADD COLUMN counts_as           uuid,
    ADD COLUMN requests_per_minute integer CHECK (requests_per_minute > 0),
    ADD COLUMN events_per_month    bigint CHECK (events_per_month >= 0);

DROP INDEX audit_log_scope;
CREATE INDEX audit_log_team ON audit_log (team_id, id);
CREATE INDEX audit_log_project ON audit_log (project_id, id) WHERE project_id IS NOT NULL;
-- What is done by the thousand is soon found among the newest rows; what is seldom done would be looked for in all of them.
CREATE INDEX audit_log_seldom ON audit_log (team_id, action, id)
    WHERE action <> ALL (ARRAY['events.received', 'jobs.queued', 'generation.started', 'observations.generated', 'observations.served']);

COMMENT ON COLUMN teams.generation_policy IS 'When observations are made of the team''s events, and of which never; a project may say it for itself.';
COMMENT ON COLUMN teams.requests_per_minute IS 'For all keys of the team together; NULL for no limit. Set by the operator only.';
COMMENT ON COLUMN teams.events_per_month IS 'For all keys of the team together; NULL for no limit. Set by the operator only.';
COMMENT ON COLUMN api_keys.last_used_at IS 'Known to the minute: it is not written with each request.';
COMMENT ON COLUMN api_keys.counts_as IS 'The key whose limits and usage this one goes on with: the first that was rotated into it; NULL for its own. Or any key could escape its limits by rotating itself.';
COMMENT ON COLUMN api_keys.replaced_by IS 'The key that a rotation has put in its place.';

GRANT INSERT, UPDATE, DELETE ON teams TO cmserver_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON team_members, api_keys TO cmserver_tenant;
