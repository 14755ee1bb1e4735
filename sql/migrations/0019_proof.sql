-- A team can let a share of its sessions be told nothing, to see what telling is good for
--
-- A session that is part of it is in one of two arms, drawn when it begins: server_sessions.arm. Of one that has ended, its turns,
-- checks, prompts and sizes are compared with those of the other arm. No team has a share until it says so.
--
-- How long: at once; the index of what is in an arm reads the sessions once, a second a million.

ALTER TABLE teams ADD COLUMN untold_share smallint NOT NULL DEFAULT 0 CHECK (untold_share BETWEEN 0 AND 50);
COMMENT ON COLUMN teams.untold_share IS 'How many of a hundred new sessions are told nothing; 0 compares none.';

ALTER TABLE server_sessions ADD COLUMN arm text CHECK (arm IN ('told', 'untold'));
COMMENT ON COLUMN server_sessions.arm IS 'What it is compared as since it began: told as ever, or nothing. NULL for one that is not compared.';
CREATE INDEX server_sessions_arm ON server_sessions (team_id, started_at) WHERE arm IS NOT NULL;
