-- One list of members: team_members says who is in a team, with an account or without, and memberships goes into it
--
-- Two tables said who belongs to a team. Every check asked memberships, which holds the people who sign in; the route and the command
-- that add a teammate wrote team_members, which no check asked. Now there is one row for each member. account_id is the account by
-- which they sign in; without one the member is a name that stands on keys, and gives nobody anything by itself.
-- No member is lost. Where a team has a person and a name that are the same but for letter case, they become one row: with the role
-- that the person had, since it is the one that was checked, with the metadata of the name, and since the earlier time.
-- From now on the account of whoever owns the server's database writes the table; requests only read it, and add the first owner of a
-- new team. Processes of the older version go on taking events; on them nobody is signed in until they are upgraded, too.
--
-- How long: a minute on a million rows in each of the two tables, on two busy cores. Most databases have few and take milliseconds.

ALTER TABLE team_members ADD COLUMN account_id uuid REFERENCES users (id) ON DELETE CASCADE;
ALTER TABLE team_members DROP CONSTRAINT team_members_role_check;
ALTER TABLE team_members ADD CONSTRAINT team_members_role_check CHECK (role IN ('owner', 'member', 'viewer'));

-- Of names that differ in letter case alone, the one that is spelled as the account is, or else the oldest.
UPDATE team_members t
   SET account_id = p.account_id, role = p.role,
       created_at = least(t.created_at, p.created_at), updated_at = greatest(t.updated_at, p.updated_at)
  FROM (SELECT DISTINCT ON (m.team_id, m.user_id)
               n.team_id, n.user_id, m.user_id AS account_id, m.role, m.created_at, m.updated_at
          FROM memberships m
          JOIN users u ON u.id = m.user_id
          JOIN team_members n ON n.team_id = m.team_id AND lower(n.user_id) = lower(u.name)
         ORDER BY m.team_id, m.user_id, n.user_id = u.name DESC, n.created_at, n.user_id) p
 WHERE t.team_id = p.team_id AND t.user_id = p.user_id;

INSERT INTO team_members (team_id, user_id, account_id, role, created_at, updated_at)
SELECT m.team_id, u.name, m.user_id, m.role, m.created_at, m.updated_at
  FROM memberships m
  JOIN users u ON u.id = m.user_id
 WHERE NOT EXISTS (SELECT FROM team_members t WHERE t.team_id = m.team_id AND t.account_id = m.user_id);

DROP TABLE memberships;

CREATE UNIQUE INDEX team_members_account ON team_members (account_id, team_id) WHERE account_id IS NOT NULL;
REVOKE UPDATE, DELETE ON team_members FROM cmserver_tenant;
COMMENT ON TABLE team_members IS 'Who belongs to a team, and as what. All checks of who may sign in, and as what, read it.';
COMMENT ON COLUMN team_members.user_id IS 'The name that stands as actor in the member''s keys; that of the account but for letter case.';
COMMENT ON COLUMN team_members.account_id IS 'The account by which they sign in. NULL for who has none, and only works with keys.';
COMMENT ON COLUMN api_keys.user_id IS 'The person who made the key for themselves; it ends when they leave the team.';
COMMENT ON COLUMN api_keys.made_by IS 'The person who made it, for themselves or another actor, also by a key of theirs; it ends when they leave the team.';
COMMENT ON COLUMN invitations.made_by IS 'The person who made it, also by a key of theirs; it ends when they leave the team.';
