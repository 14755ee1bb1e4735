-- Fewer index entries for each event and its job.
--
-- Why: an event, its job and what is made of it left 53 entries in indexes, 26 of them of the job, whose three versions entered nine
-- indexes each. Five of these said the same twice. A job's idempotency key is a hash of the columns of the other unique key: only
-- the columns are unique now, in one index for jobs of events, which also finds the job of an event, and in one for all others. The
-- id alone had an index beside that of (id, project, team), which the foreign keys need and which finds an id as well: ids are made
-- by the server and never reused. A source was unique by three of its columns and by four.
-- Events' jobs have no idempotency key from now on.
-- The previous release keeps working: it asks for no more than these indexes do, and still writes the key.
-- How long: two indexes on the jobs, some seconds per million rows; writing to them waits meanwhile.

ALTER TABLE observation_generation_jobs DROP CONSTRAINT observation_generation_jobs_idempotency_key_key;
ALTER TABLE observation_generation_jobs ALTER COLUMN idempotency_key DROP NOT NULL;
ALTER TABLE observation_generation_jobs DROP CONSTRAINT observation_generation_jobs_source_id_source_type_job_type__key;
CREATE UNIQUE INDEX observation_jobs_source ON observation_generation_jobs (source_id, source_type, job_type, source_run)
    WHERE source_type <> 'agent_event';
DROP INDEX observation_jobs_event;
CREATE UNIQUE INDEX observation_jobs_event ON observation_generation_jobs (agent_event_id) WHERE agent_event_id IS NOT NULL;
COMMENT ON COLUMN observation_generation_jobs.idempotency_key IS 'Of summaries and reindex jobs. The job of an event is unique by its event.';

ALTER TABLE observation_generation_jobs DROP CONSTRAINT observation_generation_jobs_pkey;
ALTER TABLE agent_events DROP CONSTRAINT agent_events_pkey;
ALTER TABLE observations DROP CONSTRAINT observations_pkey;
ALTER TABLE observation_sources DROP CONSTRAINT observation_sources_source_type_source_id_generation_job_id_key;
