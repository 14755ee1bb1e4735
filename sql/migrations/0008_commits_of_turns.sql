-- A turn notes the commits that it made, so that a line of code leads to it by its commit
--
-- Each is a trace of its turn, as its edits are, and goes where they go. Its name is the first seven digits of the hash, by which it is
-- found with the index that there is; `commit` is the hash as git printed it. Turns of before have none: what they edited says its commit.
--
-- How long: a second, in which turn_traces are read once. Who reads or writes them waits meanwhile.

ALTER TABLE turn_traces
    DROP CONSTRAINT turn_traces_kind_check,
    ADD CONSTRAINT turn_traces_kind_check CHECK (kind IN ('edit', 'check', 'commit'));
COMMENT ON COLUMN turn_traces.name IS 'The file of an edit, the program of a check, the first seven digits of a commit.';
COMMENT ON COLUMN turn_traces.commit IS 'The commit that has the edit, empty where its hash is not known; NULL until there is one. Of a commit its hash.';
