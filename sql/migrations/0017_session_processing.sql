-- A session shows that a worker is on it: generation_status may be `processing`.
--
-- Why: from a batch's claim to its end a session said `idle`, or how the batch before had ended, so nobody could tell a session that
-- waits from one that is worked on.
-- The previous release keeps working: it only writes `completed` and `failed`, and shows any status as it is.
-- How long: a moment; it looks at each session once.

ALTER TABLE server_sessions DROP CONSTRAINT server_sessions_generation_status_check;
ALTER TABLE server_sessions ADD CONSTRAINT server_sessions_generation_status_check
    CHECK (generation_status IN ('idle', 'processing', 'completed', 'failed'));
