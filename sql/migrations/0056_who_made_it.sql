-- Say which person made a key or an invitation.
--
-- Why: what somebody made outlived their place in the team. An invitation that an owner had made worked after they were removed, and so
-- did a key that they had made for another actor, whose secret they know. Both end with them now, and a lower role lowers their keys.
-- Keys and invitations of before get their maker from the audit log, as far as it reaches back; a rotated key has that of the first.
-- How long: quick; there are few of both.

ALTER TABLE api_keys ADD COLUMN made_by uuid REFERENCES users (id) ON DELETE SET NULL;
ALTER TABLE invitations ADD COLUMN made_by uuid REFERENCES users (id) ON DELETE CASCADE;
COMMENT ON COLUMN api_keys.made_by IS 'The person who made it, for themselves or another actor, also by a key of theirs; it ends with their membership.';
COMMENT ON COLUMN invitations.made_by IS 'The person who made it, also by a key of theirs; it ends with their membership.';

UPDATE api_keys SET made_by = user_id WHERE user_id IS NOT NULL;
UPDATE api_keys k SET made_by = a.user_id
  FROM audit_log a
 WHERE k.made_by IS NULL AND a.team_id = k.team_id AND a.action = 'key.created' AND a.resource_id = k.id::text
   AND EXISTS (SELECT FROM users u WHERE u.id = a.user_id);
UPDATE api_keys k SET made_by = first.made_by
  FROM api_keys first
 WHERE k.made_by IS NULL AND k.team_id = first.team_id AND first.id = k.counts_as;
UPDATE invitations i SET made_by = a.user_id
  FROM audit_log a
 WHERE i.used_at IS NULL AND a.team_id = i.team_id AND a.action = 'person.invited' AND a.resource_id = i.id::text
   AND EXISTS (SELECT FROM users u WHERE u.id = a.user_id);

CREATE INDEX api_keys_made_by ON api_keys (made_by) WHERE made_by IS NOT NULL;
CREATE INDEX invitations_made_by ON invitations (made_by) WHERE made_by IS NOT NULL;
