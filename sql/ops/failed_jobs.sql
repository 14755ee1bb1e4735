-- What failed and why, the newest first. retry_job.sql and retry_failed.sql send it back.
SELECT id, team, project, job_type, attempts, failed_at, reason, message
  FROM failed_jobs
 ORDER BY failed_at DESC
 LIMIT 100;
