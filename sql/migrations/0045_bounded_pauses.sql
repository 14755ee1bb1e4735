-- Pauses of providers, and what waits for them, end within a day.
--
-- Why: earlier versions took a time of any year out of a model's sentence ("resets Dec 31, 9999"), and paused its provider for all teams
-- until then. Today only an HTTP status or a reported error pauses, for at most 24 hours; rows of before are brought to the same.
-- What waits for a budget keeps its time.
-- The previous release keeps working: it finds shorter pauses.
-- How long: instant; one row for each provider, and one for each session that waits for one.

UPDATE provider_pauses SET until_at = now() + interval '24 hours' WHERE until_at > now() + interval '24 hours';

UPDATE generation_lanes
   SET held_until = now() + interval '24 hours', due_at = least(due_at, now() + interval '24 hours')
 WHERE held_until > now() + interval '24 hours' AND held_for IS DISTINCT FROM 'budget';
