-- Calls, tokens and costs by day, project and model in the last `days` (30).
\if :{?days} \else
\set days 30
\endif
SELECT day, team, project, provider, model, calls, failed_calls, input_tokens, output_tokens, cache_read_tokens, cost_usd, unpriced_calls
  FROM spend_by_project
 WHERE day >= date_trunc('day', now()) - make_interval(days => :days)
 ORDER BY day DESC, cost_usd DESC NULLS LAST, input_tokens DESC;
