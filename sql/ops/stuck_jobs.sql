-- Jobs that should move and do not: running on a worker that fell silent or for longer than `minutes` (5), or waiting for longer than
-- that in a lane that is due. An empty answer is good news. requeue_stale.sql helps; held lanes are in lanes.sql.
\if :{?minutes} \else
\set minutes 5
\endif
SELECT j.id, t.name AS team, p.canonical_id AS project, j.job_type, j.status, j.attempts, j.locked_by,
       CASE WHEN j.status = 'queued' AND l.due_at IS NULL THEN 'its lane sleeps: SELECT wake_sleeping_lanes()'
            WHEN j.status = 'queued' THEN 'waits in a lane that is due'
            WHEN j.worker_id NOT IN (SELECT live_workers()) THEN 'its worker is gone or fell silent'
            ELSE 'runs for long' END AS why,
       now() - coalesce(j.locked_at, l.due_at, j.updated_at) AS since
  FROM observation_generation_jobs j
  JOIN projects p ON p.id = j.project_id
  JOIN teams t ON t.id = j.team_id
  LEFT JOIN generation_lanes l ON l.lane = j.lane
 WHERE j.phase = 'open' -- queued or processing
   AND ((j.status = 'processing'
         AND (j.worker_id NOT IN (SELECT live_workers())
              OR j.locked_at < now() - make_interval(mins => :minutes)))
     OR (j.status = 'queued' AND l.worker_id IS NULL AND (l.due_at IS NULL OR l.due_at < now() - make_interval(mins => :minutes))))
 ORDER BY since DESC;
