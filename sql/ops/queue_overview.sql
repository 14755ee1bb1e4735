-- How many jobs are in which state, for each team and project: what waits, what runs, what failed.
SELECT team, project, source_type, status, jobs, oldest, now() - oldest AS age_of_oldest, most_attempts
  FROM queue_overview
 ORDER BY team, project, source_type, status;
