-- Gives back what dead workers hold, as every worker does every two seconds while a lane is held; shows the jobs that went back.
-- Safe beside running workers: a late answer of the old worker is refused.
SELECT requeue_stale() AS given_back;
