-- A key that is bound to an account acts under the account's name, so that one's own memory never looks like somebody else's
--
-- What came by the key before carries its former name, which is read as the account's from then on: in the team's rows nothing is
-- written anew.
--
-- How long: milliseconds; the keys are read once.

ALTER TABLE api_keys ADD COLUMN former_actor text;
COMMENT ON COLUMN api_keys.former_actor IS 'The name under which the key acted before its person bound it; what carries that name is shown under theirs.';
CREATE INDEX api_keys_former_actor ON api_keys (team_id) WHERE former_actor IS NOT NULL;

UPDATE api_keys k SET former_actor = k.actor_id, actor_id = u.name, updated_at = now()
  FROM users u
 WHERE u.id = k.user_id AND k.actor_id <> u.name;
