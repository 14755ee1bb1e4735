-- Each team's queue at a glance, as `cmserver status` shows it: what waits, runs, rests and has ended, how many jobs came back from lost
-- workers, and how long the oldest that is due has waited.
SELECT team, waiting, active, delayed, held, completed, failed, cancelled, recovered, oldest_waiting
  FROM queue_totals
 ORDER BY oldest_waiting DESC NULLS LAST, team;
