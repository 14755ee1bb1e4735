-- Jobs that should move and do not: running on a worker that fell silent or for longer than `minutes` (5), or waiting for longer than
-- that in a lane that is due. An empty answer is good news. requeue_stale.sql helps; held lanes are in lanes.sql.
\if :{?minutes} \else
\set minutes 5
\endif
SELECT j.id, t.name AS team, p.canonical_id AS project, j.job_type, j.status, j.attempts, j.locked_by,
       CASE WHEN j.status = 'queued' THEN 'waits in a lane that is due'
            WHEN w.id IS NULL THEN 'its worker is gone'
            WHEN w.last_heartbeat < now() - interval '20 seconds' THEN 'its worker fell silent'
            ELSE 'runs for long' END AS why,
       now() - coalesce(j.locked_at, l.due_at) AS since
  FROM observation_generation_jobs j
  JOIN projects p ON p.id = j.project_id
  JOIN teams t ON t.id = j.team_id
  LEFT JOIN generation_lanes l ON l.lane = j.lane
  LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
 WHERE (j.status = 'processing'
        AND (w.id IS NULL OR w.last_heartbeat < now() - interval '20 seconds'
             OR j.locked_at < now() - make_interval(mins => :minutes)))
    OR (j.status = 'queued' AND l.worker_id IS NULL AND l.due_at < now() - make_interval(mins => :minutes))
 ORDER BY since DESC;
