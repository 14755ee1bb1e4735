-- Let a person say what the line of a turn shall be, and keep sentences out of it that are a tool's words.
--
-- Why: a session starts with a line a turn, made of what was said. Where it says a wrong thing, somebody can write it anew, or leave it out,
-- for all sessions. And an agent's sentence that repeats a page it fetched, or what a command printed, is that source's: it is still
-- found, but no line says it.
-- How long: two new columns, at once. Turns of before are read again for it with their sentences.
ALTER TABLE turns
    ADD COLUMN own_line text CONSTRAINT turns_own_line_check CHECK (length(own_line) <= 600),
    ADD COLUMN borrowed integer[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN turns.own_line IS 'What a person says its line shall be: empty for none, NULL for the one that is made of it.';
COMMENT ON COLUMN turns.borrowed IS 'Hashes of the reply''s sentences that share eight words in a row with what a tool put out.';
UPDATE turn_sentences s SET due_at = now() FROM turns t WHERE t.id = s.turn_id AND t.reply IS NOT NULL;
