-- Batches of many jobs: the log of their steps takes no longer for each
--
-- The trigger that writes the log compares the rows before and after. Their number is not known when its statement is planned, and
-- compared one by one a thousand jobs took seconds.
--
-- How long: a moment, whatever is stored.

ALTER FUNCTION generation_job_log_update() SET enable_nestloop = off;
