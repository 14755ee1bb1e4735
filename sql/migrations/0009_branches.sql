-- What was said on a branch is told with its name until it is merged: a clone says which of its commits are not
--
-- Commits that neither what is checked out in the clone nor its trunk has, as its git says it. Clones of before have none, until they tell it.
--
-- How long: at once; no row is read.

ALTER TABLE clones ADD COLUMN places jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(places) = 'object');
COMMENT ON COLUMN clones.places IS 'By commit that is not merged there, the branches that have it.';
