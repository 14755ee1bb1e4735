-- A session can have a title; and one rule says which time counts for what was delivered late.
--
-- Why: people name their sessions. And what a client program kept while the server was away arrives hours later: it happened when the
-- client program says, not when it arrived. Clocks of clients differ, so the time of arrival counts for whatever came within a minute, and
-- for what claims to be older than 30 days or from the future.
-- The previous release keeps working: it does not read the column.
-- How long: a moment.

ALTER TABLE server_sessions ADD COLUMN title text CHECK (length(title) BETWEEN 1 AND 200);
COMMENT ON COLUMN server_sessions.title IS 'What people call the session. NULL until somebody gives it a title.';

CREATE FUNCTION time_of_event(occurred_at timestamptz, received_at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN occurred_at BETWEEN received_at - interval '30 days' AND received_at - interval '1 minute'
                THEN occurred_at ELSE received_at END
$$;
COMMENT ON FUNCTION time_of_event IS 'When something happened: as its client says if it was delivered late, else when it arrived.';
