"""The SQL of the index: rows without their long texts, each query from an index in its order and with an end."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.recall.index.model import Details, Row, SummaryText

OWNS: set[str] = set()

# A summary of a session in which nothing worth it happened says so, and no more: it is no news, here and below.
NEWEST = Query(
    Row,
    """
    SELECT number, project_id, server_session_id, scope, kind, type,
           left(coalesce(nullif(title, ''), nullif(narrative, ''), content), 640) AS title,
           CASE WHEN %(with_files)s THEN (coalesce(files_modified, '{}') || coalesce(files_read, '{}'))[1:12] ELSE '{}'
            END AS files,
           coalesce(read_tokens, (length(content) + 3) / 4) AS read_tokens, coalesce(discovery_tokens, 0) AS discovery_tokens,
           created_at
      FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s
       AND (kind <> 'summary' OR summary IS NULL
            OR jsonb_strip_nulls(summary) ?| ARRAY['investigated', 'learned', 'completed', 'next_steps'])
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """,
)

# What other projects share with the whole team.
SHARED = Query(
    Row,
    """
    SELECT number, project_id, server_session_id, scope, kind, type,
           left(coalesce(nullif(title, ''), nullif(narrative, ''), content), 640) AS title,
           CASE WHEN %(with_files)s THEN (coalesce(files_modified, '{}') || coalesce(files_read, '{}'))[1:12] ELSE '{}'
            END AS files,
           coalesce(read_tokens, (length(content) + 3) / 4) AS read_tokens, coalesce(discovery_tokens, 0) AS discovery_tokens,
           created_at
      FROM observations
     WHERE team_id = %(team_id)s AND scope = 'team' AND project_id <> %(project_id)s
       AND (kind <> 'summary' OR summary IS NULL
            OR jsonb_strip_nulls(summary) ?| ARRAY['investigated', 'learned', 'completed', 'next_steps'])
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """,
)

SUMMARIES = Query(
    Row,
    """
    SELECT number, project_id, server_session_id, scope, kind, type,
           left(coalesce(nullif(title, ''), nullif(narrative, ''), content), 640) AS title, '{}'::text[] AS files,
           coalesce(read_tokens, (length(content) + 3) / 4) AS read_tokens, coalesce(discovery_tokens, 0) AS discovery_tokens,
           created_at
      FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND kind = 'summary'
       AND (summary IS NULL OR jsonb_strip_nulls(summary) ?| ARRAY['investigated', 'learned', 'completed', 'next_steps'])
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """,
)

OF_SESSION = Query(
    Row,
    """
    SELECT number, project_id, server_session_id, scope, kind, type,
           left(coalesce(nullif(title, ''), nullif(narrative, ''), content), 640) AS title,
           CASE WHEN %(with_files)s THEN (coalesce(files_modified, '{}') || coalesce(files_read, '{}'))[1:12] ELSE '{}'
            END AS files,
           coalesce(read_tokens, (length(content) + 3) / 4) AS read_tokens, coalesce(discovery_tokens, 0) AS discovery_tokens,
           created_at
      FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND server_session_id = %(session_id)s
       AND (kind <> 'summary' OR summary IS NULL
            OR jsonb_strip_nulls(summary) ?| ARRAY['investigated', 'learned', 'completed', 'next_steps'])
     ORDER BY created_at DESC
     LIMIT %(limit)s
    """,
)

# The search index knows files by their names, too (see 0005). A name finds more than that file: whoever asks looks at the paths
# themselves. The words of a path would find less, but `src` is in every other row, and to intersect them takes longer. Through the
# view, because @@ cannot use its index under a policy.
TOUCHING = Query(
    Row,
    """
    SELECT number, project_id, server_session_id, scope, kind, type,
           left(coalesce(nullif(title, ''), nullif(narrative, ''), content), 640) AS title,
           (coalesce(files_modified, '{}') || coalesce(files_read, '{}'))[1:12] AS files,
           coalesce(read_tokens, (length(content) + 3) / 4) AS read_tokens, coalesce(discovery_tokens, 0) AS discovery_tokens,
           created_at
      FROM observations_in_team
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s
       AND content_search @@ (
               SELECT string_agg('(' || words::text || ')', ' | ')::tsquery
                 FROM (SELECT plainto_tsquery(('pg_catalog.' || p.search_language)::regconfig, n.said) AS words
                         FROM unnest(%(names)s::text[]) AS n (said) JOIN projects p ON p.id = %(project_id)s) w
                WHERE numnode(words) > 0)
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """,
)

DETAILS = Query(
    Details,
    """
    SELECT number, left(subtitle, 640) AS subtitle,
           ARRAY(SELECT left(fact, 640) FROM unnest(facts[1:3]) fact) AS facts
      FROM observations
     WHERE team_id = %(team_id)s AND number = ANY(%(numbers)s)
    """,
)

SUMMARY = Query(
    SummaryText,
    "SELECT summary, left(content, 2800) AS content FROM observations WHERE team_id = %(team_id)s AND number = %(number)s",
)


async def newest(conn: Conn, team_id: UUID, project_id: UUID, *, with_files: bool, limit: int) -> list[Row]:
    return await NEWEST.all(conn, team_id=team_id, project_id=project_id, with_files=with_files, limit=limit)


async def shared(conn: Conn, team_id: UUID, project_id: UUID, *, with_files: bool, limit: int) -> list[Row]:
    """The newest of scope `team` in the team's other projects."""
    return await SHARED.all(conn, team_id=team_id, project_id=project_id, with_files=with_files, limit=limit)


async def summaries(conn: Conn, team_id: UUID, project_id: UUID, limit: int) -> list[Row]:
    """The newest first."""
    return await SUMMARIES.all(conn, team_id=team_id, project_id=project_id, limit=limit)


async def of_session(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID, *, with_files: bool, limit: int) -> list[Row]:
    return await OF_SESSION.all(
        conn, team_id=team_id, project_id=project_id, session_id=session_id, with_files=with_files, limit=limit
    )


async def touching(conn: Conn, team_id: UUID, project_id: UUID, names: Sequence[str], limit: int) -> list[Row]:
    """What seems to be about a file of one of these names, the newest first."""
    return await TOUCHING.all(conn, team_id=team_id, project_id=project_id, names=list(names), limit=limit)


async def details(conn: Conn, team_id: UUID, numbers: Sequence[int]) -> dict[int, Details]:
    return {one.number: one for one in await DETAILS.all(conn, team_id=team_id, numbers=list(numbers))}


async def summary(conn: Conn, team_id: UUID, number: int) -> SummaryText | None:
    return await SUMMARY.first(conn, team_id=team_id, number=number)
