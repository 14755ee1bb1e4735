"""The SQL of what prompts and files are told: it reads observations through the view that keeps the index usable."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from psycopg import errors

from cmserver.base.sql import Conn, Query
from cmserver.recall.model import AboutFile, Shared

OWNS: set[str] = set()

# In the order in which the text has them, so that a limit keeps the first.
LEXEMES = Query(
    str,
    """
    SELECT u.lexeme FROM unnest(to_tsvector(('pg_catalog.' || %(language)s)::regconfig, %(text)s)) u
     ORDER BY u.positions[1], u.lexeme LIMIT %(limit)s
    """,
)

# Until the transaction ends. The planner does not know the words of a list, and takes reading the whole table for the quickest way
# to the first of a few: 33 ms a word in 100,000 rows, where the index takes a tenth of one.
IN_TIME = Query(str, "SELECT set_config('statement_timeout', '500', true) || set_config('enable_seqscan', 'off', true)")

# What many of the newest have is not looked up at all.
# For each word at most `most` documents are looked at: one that more have says nothing, and is left out of account. The candidates
# are those whose words are the rarest together; only their vectors are opened. Through the view, as RANK.
SHARED = Query(
    Shared,
    """
    WITH scope AS MATERIALIZED (
        SELECT count(*)::int AS documents, least(greatest(count(*) / 5, 4), %(most)s)::int AS most
          FROM (SELECT 1 FROM observations_in_team WHERE project_id = %(project_id)s
                 UNION ALL
                SELECT 1 FROM observations_in_team WHERE scope = 'team' AND project_id <> %(project_id)s) d
    ), sample AS MATERIALIZED (
        SELECT content_search FROM observations_in_team WHERE project_id = %(project_id)s
         ORDER BY created_at DESC, id DESC LIMIT 200
    ), asked AS MATERIALIZED (
        SELECT a.lexeme, a.quoted FROM unnest(%(lexemes)s::text[], %(quoted)s::text[]) AS a (lexeme, quoted)
         WHERE (SELECT count(*) FROM sample s WHERE s.content_search @@ a.quoted::tsquery)
               <= (SELECT greatest(count(*) / 3, 4) FROM sample)
    ), found AS MATERIALIZED (
        SELECT a.lexeme, f.id
          FROM asked a
         CROSS JOIN LATERAL (
               SELECT o.id FROM observations_in_team o
                WHERE (o.project_id = %(project_id)s OR o.scope = 'team')
                  AND (%(session_id)s::uuid IS NULL OR o.server_session_id IS DISTINCT FROM %(session_id)s::uuid)
                  AND o.content_search @@ a.quoted::tsquery
                LIMIT (SELECT most + 1 FROM scope)) f
    ), words AS MATERIALIZED (
        SELECT f.lexeme, count(*)::int AS found_in, ln(s.documents / count(*)::float8) AS rarity, s.documents
          FROM found f CROSS JOIN scope s GROUP BY f.lexeme, s.documents, s.most HAVING count(*) <= s.most
    ), candidates AS MATERIALIZED (
        SELECT f.id FROM found f JOIN words w USING (lexeme) GROUP BY f.id ORDER BY sum(w.rarity) DESC, f.id DESC LIMIT %(limit)s
    )
    SELECT o.id, w.lexeme, w.found_in, w.documents, (SELECT min(weight) FROM unnest(u.weights) weight) AS weight
      FROM candidates c
      JOIN observations_in_team o ON o.id = c.id
     CROSS JOIN LATERAL unnest(o.content_search) u
      JOIN words w ON w.lexeme = u.lexeme
    """,
    prepare=False,
)

# The vector has each file's name by itself, so the index finds those that name one of that name; which path it is, their lists say.
# A path is known by its end: agents say it from the root of the disk, observations mostly from that of the project.
ABOUT_FILE = Query(
    AboutFile,
    """
    SELECT id, coalesce(files_modified, '{}') AS files_modified, coalesce(files_read, '{}') AS files_read, created_at
      FROM observations_in_team
     WHERE project_id = %(project_id)s
       AND (%(session_id)s::uuid IS NULL OR server_session_id IS DISTINCT FROM %(session_id)s::uuid)
       AND content_search @@ plainto_tsquery((SELECT ('pg_catalog.' || p.search_language)::regconfig FROM projects p
                                               WHERE p.id = %(project_id)s), %(name)s)
       AND EXISTS (SELECT FROM unnest(coalesce(files_modified, '{}') || coalesce(files_read, '{}')) AS file
                    WHERE right('/' || replace(file, '\\', '/'), length(%(name)s) + 1) = '/' || %(name)s)
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """,
    prepare=False,
)


async def lexemes(conn: Conn, language: str, text: str, limit: int) -> list[str]:
    """The first `limit` different lexemes of the text in that language: stemmed, and without stop words."""
    return await LEXEMES.all(conn, language=language, text=text, limit=limit)


async def shared(
    conn: Conn, project_id: UUID, session_id: UUID | None, lexemes: Sequence[str], *, most: int, limit: int
) -> list[Shared]:
    """Which of the lexemes the `limit` observations have that have the rarest of them, of the project or shared with the team.

    A lexeme that more than a fifth of the documents have (and more than 4), or more than `most`, is not counted. What was observed
    in the session itself is left out. A search that takes longer than half a second finds nothing: somebody waits.
    """
    try:
        async with conn.transaction():
            await IN_TIME.run(conn)
            return await SHARED.all(
                conn,
                project_id=project_id,
                session_id=session_id,
                lexemes=list(lexemes),
                quoted=[_quoted(lexeme) for lexeme in lexemes],
                most=most,
                limit=limit,
            )
    except errors.QueryCanceled:
        return []


async def about_file(conn: Conn, project_id: UUID, session_id: UUID | None, name: str, limit: int) -> list[AboutFile]:
    """The newest observations of the project that name a file of that name, in whatever folder; none of the session itself."""
    return await ABOUT_FILE.all(conn, project_id=project_id, session_id=session_id, name=name, limit=limit)


def _quoted(lexeme: str) -> str:
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"
