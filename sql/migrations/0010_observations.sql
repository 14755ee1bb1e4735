-- Observations written by hand, those that a whole team shares, and what erasing takes.
--
-- Why: an observation of scope `team` is recalled in every project of its team, so search and the context of a session look for those
-- beside the project's own: they have an index of their own, with the words that BM25 needs. Lists by type, and of what was
-- written by hand, are read from an index even where what they ask for is rare.
-- Erasure is made in the tenant's role, behind row-level security, and so that role may delete what generation has made of the
-- events, and the buckets of keys that go with their project.
-- The previous release keeps working: indexes and grants only.
-- How long: some ten seconds per million observations; writing them waits meanwhile.

CREATE INDEX observations_team_scope
    ON observations (team_id, created_at, id) INCLUDE (project_id, content_words) WHERE scope = 'team';
CREATE INDEX observations_manual ON observations (team_id, created_at, id) WHERE kind = 'manual';
-- True of every observation: see 0008.
CREATE INDEX observations_type ON observations (team_id, type, created_at, id) WHERE created_at > '-infinity';

GRANT DELETE ON observation_generation_jobs, generation_lanes, generation_runs, rate_limits TO cmserver_tenant;
