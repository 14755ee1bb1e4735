-- What was said on a branch is told with its name until it is merged: a clone says which of its commits are not
--
-- Commits that neither what is checked out in the clone nor its trunk has, and what became of those that no branch has any more, as its git
-- says it. Clones of before have none, until they tell it.
--
-- How long: at once; no row is read.

ALTER TABLE clones ADD COLUMN places jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(places) = 'object');
COMMENT ON COLUMN clones.places IS 'By commit where it is while it is not merged: state, branch, and the branch''s last commit.';
