-- Who of each team reads the words of others, and how many sessions are a person's and how many nobody's. To read as one of them: SET ROLE
-- cmserver_tenant, and set cmserver.team_id, cmserver.words to 'own' and cmserver.reader to the id of the account.
SELECT t.name AS team, t.words AS readers, count(s.person_id) AS of_people, count(s.id) - count(s.person_id) AS of_nobody
  FROM teams t LEFT JOIN server_sessions s ON s.team_id = t.id
 WHERE t.private_of IS NULL
 GROUP BY t.id ORDER BY t.name;
