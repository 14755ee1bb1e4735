-- One job: its state, and each step of its life. Needs -v job=<id>.
SELECT id, status, attempts, max_attempts, next_attempt_at, locked_by, outcome, outcome_reason, last_error
  FROM observation_generation_jobs
 WHERE id = :'job';

SELECT created_at, event_type, status_after, attempt, details
  FROM observation_generation_job_events
 WHERE generation_job_id = :'job'
 ORDER BY id;
