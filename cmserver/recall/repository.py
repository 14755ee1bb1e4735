"""The SQL of search. Recall owns no table yet: it reads observations through the view that keeps the index usable."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.recall.model import Ranked

OWNS: set[str] = set()

# In the order in which the text has them, so that a limit keeps the first.
LEXEMES = Query(
    str,
    """
    SELECT u.lexeme FROM unnest(to_tsvector('english', %(text)s)) u ORDER BY u.positions[1], u.lexeme LIMIT %(limit)s
    """,
)

# BM25 with k1 = 0.9 and b = 0.4 over one project and what other projects share with the whole team. How many documents have a
# lexeme is counted from the hits themselves: exact, and no statistics to keep. The view instead of the table, because @@ cannot use
# its index under a policy; no prepared plan, because only the real tsquery tells the planner how many rows it finds. Scores are
# rounded: equal documents tie, and the newest wins.
RANK = Query(
    Ranked,
    """
    WITH scope AS MATERIALIZED (
        SELECT count(*)::float8 AS documents, avg(content_words)::float8 AS words
          FROM (SELECT content_words FROM observations_in_team WHERE project_id = %(project_id)s
                 UNION ALL
                SELECT content_words FROM observations_in_team WHERE scope = 'team' AND project_id <> %(project_id)s) d
    ), terms AS MATERIALIZED (
        SELECT o.id, o.created_at, o.content_words::float8 AS words, t.lexeme, cardinality(t.positions)::float8 AS tf,
               numnode(websearch_to_tsquery('english', %(must)s)) = 0
                   OR o.content_search @@ websearch_to_tsquery('english', %(must)s) AS wanted
          FROM observations_in_team o CROSS JOIN LATERAL unnest(o.content_search) t
         WHERE (o.project_id = %(project_id)s OR o.scope = 'team')
           AND o.content_search @@ %(any)s::tsquery AND t.lexeme = ANY(%(lexemes)s)
    ), lexemes AS (
        SELECT t.lexeme, ln(1 + (s.documents - count(*) + 0.5) / (count(*) + 0.5)) AS idf
          FROM terms t CROSS JOIN scope s GROUP BY t.lexeme, s.documents
    )
    SELECT t.id, round(sum(l.idf * t.tf * 1.9 / (t.tf + 0.9 * (0.6 + 0.4 * (t.words / s.words))))::numeric, 12)::float8 AS score
      FROM terms t JOIN lexemes l ON l.lexeme = t.lexeme CROSS JOIN scope s
     WHERE t.wanted
     GROUP BY t.id, t.created_at
     ORDER BY score DESC, t.created_at DESC, t.id DESC
     LIMIT %(limit)s
    """,
    prepare=False,
)


async def lexemes(conn: Conn, text: str, limit: int) -> list[str]:
    """The first `limit` different lexemes of the text, as the search index has them: stemmed, and without stop words."""
    return await LEXEMES.all(conn, text=text, limit=limit)


async def rank(conn: Conn, project_id: UUID, lexemes: Sequence[str], must: str, limit: int) -> list[Ranked]:
    """The observations with any of the lexemes, of the project or shared with the team, the best first.

    `must` is in the syntax of websearch_to_tsquery and only hides: a document that it rules out still counts for the weights.
    """
    any_of = " | ".join(_quoted(lexeme) for lexeme in lexemes)
    return await RANK.all(conn, project_id=project_id, any=any_of, lexemes=list(lexemes), must=must, limit=limit)


def _quoted(lexeme: str) -> str:
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"
