-- Calls of providers that gave nothing in the last `days` (1), the newest first, and how what they did say begins.
\if :{?days} \else
\set days 1
\endif
SELECT r.created_at, r.id, t.name AS team, p.canonical_id AS project, r.provider, r.model, r.status, r.error_class, r.error_message,
       cardinality(r.job_ids) AS jobs, r.input_tokens, r.output_tokens, left(r.answer, 300) AS answer
  FROM generation_runs r JOIN teams t ON t.id = r.team_id JOIN projects p ON p.id = r.project_id
 WHERE r.status IN ('failed', 'unusable', 'lost') AND r.created_at >= now() - make_interval(days => :days)
 ORDER BY r.created_at DESC
 LIMIT 100;
