-- Asks a paused provider again at once; the lanes that waited for it are due. Needs -v provider=<name>.
BEGIN;
DELETE FROM provider_pauses WHERE provider = :'provider' RETURNING provider, reason;
WITH held AS (SELECT lane FROM generation_lanes WHERE held_for = :'provider' AND worker_id IS NULL ORDER BY lane FOR UPDATE)
UPDATE generation_lanes l SET held_until = NULL, held_reason = NULL, held_for = NULL, due_at = now()
  FROM held WHERE l.lane = held.lane
RETURNING l.lane AS due_again;
COMMIT;
