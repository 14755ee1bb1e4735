-- What is stored and not embedded yet, for each model, team and project: how much is due now, how much failed and why, how much was
-- given up (`cmserver embeddings retry` tries that again), and since when the oldest waits.
SELECT m.provider, m.model, m.state, t.name AS team, p.canonical_id AS project,
       count(*) AS waiting, count(*) FILTER (WHERE e.next_at <= now()) AS due, count(e.last_error) AS failing,
       count(*) FILTER (WHERE e.next_at = 'infinity') AS given_up, string_agg(DISTINCT e.last_error, ', ') AS reasons,
       now() - min(e.created_at) AS age_of_oldest
  FROM observation_embeddings e
  JOIN embedding_models m ON m.id = e.model_id
  JOIN teams t ON t.id = e.team_id
  JOIN projects p ON p.id = e.project_id
 WHERE e.embedding IS NULL AND m.state <> 'retired'
 GROUP BY m.id, m.provider, m.model, m.state, t.name, p.canonical_id
 ORDER BY m.id, waiting DESC;
