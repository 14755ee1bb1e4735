-- A job of the steward is in the lane of its project, also after projects were joined
--
-- By `lane = project_id` a claim tells the steward's lanes from those of events. A job that went to another project with its
-- observations kept its lane, and was claimed as an event is. Now it changes its lane, and the new one is due. One that runs keeps
-- its lane, by which its claim is known, until it ends, is sent back or is lost. A lane that is left empty goes.
-- An index for the steward's due lanes: a claim looks there first, since one that is due for a minute has its turn among the events.
-- queue_totals no longer counts the steward's jobs in the age of the oldest, as /v1/info does not.
--
-- How long: milliseconds.

CREATE INDEX generation_lanes_steward ON generation_lanes (due_at)
    WHERE lane = project_id AND worker_id IS NULL AND due_at IS NOT NULL;

CREATE FUNCTION follow_project() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.lane := NEW.project_id;
    IF NEW.status = 'queued' THEN
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
        VALUES (NEW.lane, NEW.team_id, NEW.project_id, coalesce(NEW.next_attempt_at, now()))
        ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at));
    END IF;
    DELETE FROM generation_lanes l
     WHERE l.lane = OLD.lane AND l.worker_id IS NULL
       AND NOT EXISTS (SELECT FROM observation_generation_jobs j WHERE j.lane = OLD.lane AND j.phase = 'open' AND j.id <> NEW.id);
    RETURN NEW;
END $$;
CREATE TRIGGER follow_project BEFORE UPDATE OF project_id, status ON observation_generation_jobs
    FOR EACH ROW WHEN (NEW.source_type = 'steward' AND NEW.lane <> NEW.project_id AND NEW.status <> 'processing')
    EXECUTE FUNCTION follow_project();
UPDATE observation_generation_jobs SET project_id = project_id WHERE source_type = 'steward' AND lane <> project_id;

-- A project's own lane stays its own when its rows go to another one.
CREATE FUNCTION stay_with_project() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER stay_with_project BEFORE UPDATE OF project_id ON generation_lanes
    FOR EACH ROW WHEN (OLD.lane = OLD.project_id) EXECUTE FUNCTION stay_with_project();

CREATE OR REPLACE VIEW queue_totals AS
    SELECT t.name AS team, q.waiting, q.active, q.delayed, q.held, e.completed, e.failed, e.cancelled, r.recovered, q.oldest_waiting
      FROM teams t
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE o.state = 'waiting') AS waiting, count(*) FILTER (WHERE o.state = 'delayed') AS delayed,
                  count(*) FILTER (WHERE o.state = 'held') AS held, count(*) FILTER (WHERE o.state = 'active') AS active,
                  now() - min(o.updated_at) FILTER (WHERE o.state = 'waiting' AND o.source_type <> 'steward') AS oldest_waiting
             FROM (SELECT j.updated_at, j.source_type,
                          CASE WHEN j.status = 'processing' THEN 'active' WHEN l.held_until > now() THEN 'held'
                               WHEN l.due_at > now() THEN 'delayed' ELSE 'waiting' END AS state
                     FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
                    WHERE j.team_id = t.id AND j.phase = 'open' AND j.created_at > '-infinity') o) q
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE j.phase = 'completed') AS completed, count(*) FILTER (WHERE j.phase = 'failed') AS failed,
                  count(*) FILTER (WHERE j.phase = 'cancelled') AS cancelled
             FROM observation_generation_jobs j
            WHERE j.team_id = t.id AND j.phase IN ('completed', 'failed', 'cancelled') AND j.created_at > '-infinity') e
     CROSS JOIN LATERAL (
           SELECT count(*) AS recovered FROM observation_generation_job_events j
            WHERE j.team_id = t.id AND j.details ->> 'reason' = 'worker lost') r;
COMMENT ON VIEW queue_totals IS 'Each team''s queue at a glance: what waits, runs, rests and has ended, what came back from lost workers, and how long the oldest has waited, but for the steward''s.';
