-- What held in a project at a moment, oldest first, with the times from and to which each held. Needs -v project=<canonical id> -v at=<time with a zone>.
SELECT o.number, o.valid_from, o.valid_to, o.type, coalesce(o.title, left(o.content, 80)) AS title
  FROM observations_as_of(:'at'::timestamptz) o
  JOIN projects p ON p.id = o.project_id
 WHERE p.canonical_id = :'project'
 ORDER BY o.created_at, o.number;
