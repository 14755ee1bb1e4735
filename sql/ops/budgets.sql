-- Which budgets there are, what is spent of them in their day or month (UTC), and which sessions wait for them.
SELECT t.name AS team, coalesce(p.canonical_id, '(whole team)') AS project, b.period, s.tokens, b.max_tokens, s.usd, b.max_usd,
       greatest(s.tokens::numeric / b.max_tokens, s.usd / b.max_usd) >= 1 AS exhausted,
       (SELECT count(*) FROM generation_lanes l
         WHERE l.held_for = 'budget' AND l.team_id = b.team_id AND (b.project_id IS NULL OR l.project_id = b.project_id)) AS waiting
  FROM budgets b
  JOIN teams t ON t.id = b.team_id
  LEFT JOIN projects p ON p.id = b.project_id
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens), 0) AS tokens,
              coalesce(sum(cost_usd), 0) AS usd
         FROM generation_spending g
        WHERE g.team_id = b.team_id AND (b.project_id IS NULL OR g.project_id = b.project_id)
          AND g.day >= date_trunc(b.period, now() AT TIME ZONE 'UTC')::date) s
 ORDER BY t.name, p.canonical_id NULLS FIRST, b.period;
