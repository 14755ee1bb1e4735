-- Sends back every job of a team that failed in the last `hours` (24). Needs -v team=<name>.
\if :{?hours} \else
\set hours 24
\endif
SELECT retry_failed(id, now() - make_interval(hours => :hours)) AS sent_back
  FROM teams WHERE name = :'team' AND archived_at IS NULL;
