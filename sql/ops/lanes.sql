-- Which lanes (sessions) have work, and what each of them waits for: a worker, a time, a provider's pause. Idle ones are left out.
SELECT lane, team, project, state, queued, due_at, held_until, held_reason, worker_id, now() - locked_at AS working_for
  FROM lane_overview
 WHERE state <> 'idle' OR queued > 0
 ORDER BY due_at NULLS FIRST, lane;
