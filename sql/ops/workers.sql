-- Who works on the outbox, when each was heard of last, and how many lanes it holds.
SELECT worker_id, label, started_at, last_heartbeat, silent_for, lanes, now() - oldest_batch AS oldest_batch
  FROM worker_overview
 ORDER BY silent_for DESC NULLS FIRST;
