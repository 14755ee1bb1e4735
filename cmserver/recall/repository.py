"""The SQL of contexts: rows of the index without their long texts, and what belongs to a prompt or a file.

Each query of the index reads from an index of the table in its order, and has an end. Words are looked up through the view that
keeps the word index usable.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString
from uuid import UUID

from cmserver.base.sql import Conn, Query, query, unprepared_query
from cmserver.base.text import quote_lexeme
from cmserver.observations.model import LIVE, MIN_INSTRUCTION_IMPORTANCE
from cmserver.recall.model import (
    FileMention,
    IndexRow,
    KnownFolder,
    NearObservation,
    NearProject,
    ObservationDetails,
    RuleText,
    SummaryText,
)

OWNS: set[str] = set()

_LOOKED_AT = 200
"""How many of the newest rows are looked at for history."""

_COLUMNS: LiteralString = """number, project_id, server_session_id, scope, kind, type, importance, state,
           stale IS NOT NULL AS is_stale, actor_id,
           quote IS NOT NULL OR (metadata ? 'commands' AND NOT metadata @> '{"commands": [{"kind": "check"}]}') AS is_unwatched,
           CASE WHEN type = 'decision' THEN substring(metadata ->> 'mayReplace' FROM '^[0-9]{1,15}$')::bigint END AS may_replace,
           left(coalesce(nullif(title, ''), nullif(narrative, ''), content), 640) AS title,
           CASE WHEN %(with_files)s THEN (coalesce(files_modified, '{}') || coalesce(files_read, '{}'))[1:12] ELSE '{}'
            END AS files,
           CASE WHEN origin = 'rules' THEN turn_number END AS turn_number,
           coalesce(read_tokens, (length(content) + 3) / 4) AS read_tokens, coalesce(discovery_tokens, 0) AS discovery_tokens,
           created_at"""

# A summary of a session that only looked, or in which nothing worth it happened, is no news: it would stand before a useful one.
_IS_NEWS: LiteralString = """(kind <> 'summary' OR summary IS NULL
            OR jsonb_strip_nulls(summary) ?| ARRAY['learned', 'completed', 'next_steps'])
       AND (state IS NULL OR state = 'open')"""


_SEES_SHARED: LiteralString = "NOT EXISTS (SELECT FROM projects WHERE id = %(project_id)s AND isolated)"
"""An isolated project sees nothing that others share. Asked once a query."""


def _newest_of(condition: LiteralString, table: LiteralString = "observations") -> Query[IndexRow]:
    """The newest of the team's rows that fulfil the condition and are news."""
    return Query(
        IndexRow,
        f"""
    SELECT {_COLUMNS}
      FROM {table}
     WHERE team_id = %(team_id)s AND {condition}
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """,
    )


_LIVE_NEWS: LiteralString = f"{LIVE} AND {_IS_NEWS}"
# History is no news, and may be newer: an index leaves it out.
NEWEST = _newest_of(f"project_id = %(project_id)s AND origin <> 'git' AND {_LIVE_NEWS}")
# Of as many of the newest as an index looks at: those that are closed may be few among many.
CLOSED = Query(
    IndexRow,
    f"""
    SELECT {_COLUMNS}
      FROM (SELECT * FROM observations
             WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND origin <> 'git' AND {LIVE}
             ORDER BY created_at DESC, id DESC
             LIMIT %(looked_at)s) newest
     WHERE state IN ('done', 'dropped')
     ORDER BY created_at DESC, number DESC
     LIMIT %(limit)s
    """,
)
SHARED = _newest_of(f"scope = 'team' AND project_id <> %(project_id)s AND {_LIVE_NEWS} AND {_SEES_SHARED}")
"""What other projects share with the whole team."""
SUMMARIES = _newest_of(f"project_id = %(project_id)s AND kind = 'summary' AND {_LIVE_NEWS}")
OF_SESSION = _newest_of(f"project_id = %(project_id)s AND server_session_id = %(session_id)s AND {_LIVE_NEWS}")
OF_TURNS = _newest_of(
    "project_id = %(project_id)s AND server_session_id = ANY(%(session_ids)s::uuid[])"
    f" AND turn_number = ANY(%(turn_numbers)s::bigint[]) AND {_LIVE_NEWS}"
)

# The search index knows files by their names, too. A name finds more than that file: whoever asks looks at the paths
# themselves. The words of a path would find less, but `src` is in every other row, and to intersect them takes longer. Through the
# view, because @@ cannot use its index under a policy.
TOUCHING = _newest_of(
    f"""project_id = %(project_id)s AND origin <> 'git' AND {_IS_NEWS}
       AND content_search @@ (
               SELECT string_agg('(' || words::text || ')', ' | ')::tsquery
                 FROM (SELECT search_all(p.search_language, n.name) AS words
                         FROM unnest(%(names)s::text[]) AS n (name) JOIN projects p ON p.id = %(project_id)s) w
                WHERE numnode(words) > 0)""",
    table="observations_in_team",
)

# Those whose message says more than its subject first: it says why.
HISTORY = Query(
    IndexRow,
    f"""
    SELECT {_COLUMNS},
           CASE caller_type WHEN 'commit'
                THEN concat('commit ', left(metadata ->> 'git', 7), ' by ' || left(metadata ->> 'author', 40) || ':')
                ELSE caller_type END AS history
      FROM (SELECT * FROM observations
             WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND {LIVE}
             ORDER BY created_at DESC, id DESC
             LIMIT %(looked_at)s) newest
     WHERE origin = 'git'
     ORDER BY length(coalesce(narrative, '')) BETWEEN 80 AND 4000 DESC, created_at DESC, id DESC
     LIMIT %(limit)s
    """,
)

DETAILS = Query(
    ObservationDetails,
    f"""
    SELECT number, left(subtitle, 640) AS subtitle,
           ARRAY(SELECT left(fact, 640) FROM unnest(facts[1:3]) fact) AS facts
      FROM observations
     WHERE team_id = %(team_id)s AND number = ANY(%(numbers)s) AND {LIVE}
    """,
)


LIMIT_STATEMENTS = Query(
    str, "SELECT current_setting('statement_timeout') || left(set_config('statement_timeout', '500', true), 0)"
)
"""What the limit was before."""


RESTORE_PLANNER = Query(
    str,
    """
    SELECT set_config('statement_timeout', %(timeout)s, true) || set_config('enable_seqscan', 'on', true)
        || set_config('enable_indexscan', 'on', true)
    """,
)

# Of each project its newest rows are looked at, so that it costs no more in a large one. While vectors are made anew a row has two.
_MAY_BE_RULE = """id, project_id, number, created_at, type, importance, scope, state,
                   left(coalesce(nullif(title, ''), content), 640) AS title"""

# The inner ones give the columns themselves: joined by their ids, the planner read the whole team.
RULES = Query(
    RuleText,
    f"""
    SELECT o.id, o.project_id, o.number, o.created_at, o.title, coalesce(e.model_id, 0) AS model_id, e.vector
      FROM (SELECT {_MAY_BE_RULE} FROM observations WHERE team_id = %(team_id)s AND id = ANY(%(ids)s) AND {LIVE}
             UNION
            SELECT n.* FROM unnest(%(project_ids)s::uuid[]) AS p (id)
             CROSS JOIN LATERAL (SELECT {_MAY_BE_RULE} FROM observations
                                  WHERE team_id = %(team_id)s AND project_id = p.id AND origin <> 'git' AND {LIVE}
                                  ORDER BY created_at DESC, id DESC LIMIT %(looked_at)s) n) o
      LEFT JOIN LATERAL (SELECT model_id, (embedding::real[])[1:256] AS vector FROM observation_embeddings
                          WHERE observation_id = o.id AND team_id = %(team_id)s AND embedding IS NOT NULL AND NOT is_outdated
                          ORDER BY model_id DESC LIMIT 1) e ON true
     WHERE o.type = 'decision' AND o.importance > %(importance)s AND o.scope = 'project' AND o.state IS NULL
     ORDER BY o.project_id, o.id = ANY(%(ids)s) DESC, o.created_at DESC, o.id DESC
    """,
)

# For each word at most `most` are looked at. Through the view, as RANK.
NEAR_OBSERVATIONS = Query(
    NearObservation,
    f"""
    WITH asked AS MATERIALIZED (
        SELECT a.quoted::tsquery AS word, a.weight, 1::bigint << (a.place::int - 1) AS bit
          FROM unnest(%(quoted)s::text[], %(weights)s::float8[]) WITH ORDINALITY AS a (quoted, weight, place)
    ), found AS MATERIALIZED (
        SELECT f.id, sum(a.weight) AS weight
          FROM asked a
         CROSS JOIN LATERAL (
               SELECT o.id FROM observations_in_team o
                WHERE (o.project_id = %(project_id)s OR (o.scope = 'team' AND {_SEES_SHARED}))
                  AND o.content_search @@ a.word
                LIMIT %(most)s) f
         GROUP BY f.id ORDER BY weight DESC, f.id DESC LIMIT %(limit)s
    ), chosen AS (
        SELECT coalesce(n.id, f.id) AS id, n.cosine
          FROM unnest(%(near_ids)s::uuid[], %(cosines)s::float8[]) AS n (id, cosine) FULL JOIN found f ON f.id = n.id
    )
    SELECT o.id, o.number, o.created_at, o.turn_number, c.cosine, left(coalesce(nullif(o.title, ''), o.content), 640) AS title,
           left(coalesce(o.narrative, ''), 2000) AS narrative,
           ARRAY(SELECT left(fact, 640) FROM unnest(o.facts[1:6]) fact) AS facts,
           coalesce((SELECT bit_or(a.bit) FROM asked a WHERE o.content_search @@ a.word), 0) AS shared
      FROM chosen c
      JOIN observations_in_team o ON o.id = c.id
     WHERE (%(session_id)s::uuid IS NULL OR o.server_session_id IS DISTINCT FROM %(session_id)s::uuid)
       AND o.kind <> 'summary' AND (o.state IS NULL OR o.state = 'open')
    """,
    prepare=True,
)


async def rules(conn: Conn, team_id: UUID, project_ids: Sequence[UUID], ids: Collection[UUID], looked_at: int) -> list[RuleText]:
    """What users laid down among these observations and the newest of the projects, by project: these, then the newest."""
    return await RULES.all(
        conn,
        team_id=team_id,
        project_ids=list(project_ids),
        ids=list(ids),
        looked_at=looked_at,
        importance=MIN_INSTRUCTION_IMPORTANCE,
    )


# Called by a folder of these, or by a folder whose last part is the project's name.
@query("""
    SELECT p.canonical_id, n.observations
      FROM projects p
     CROSS JOIN LATERAL (SELECT count(*) AS observations FROM observations o
                          WHERE o.project_id = p.id AND o.team_id = p.team_id
                            AND o.superseded_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > now())) n
     WHERE p.team_id = %(team_id)s AND p.id <> %(project_id)s AND p.archived_at IS NULL AND NOT p.isolated
       AND (p.canonical_id = ANY (%(folders)s::text[]) OR (p.name = %(name)s AND p.canonical_id ~ '^(/|[A-Z]:/)'))
       AND n.observations > 0
     ORDER BY p.canonical_id = ANY (%(folders)s::text[]) DESC, p.updated_at DESC LIMIT %(limit)s
    """)
async def near(conn: Conn, team_id: UUID, project_id: UUID, *, name: str, folders: Sequence[str], limit: int) -> list[NearProject]:
    """Projects with memory that were called by one of these folders, or by a folder of that name."""
    ...


async def newest(conn: Conn, team_id: UUID, project_id: UUID, *, with_files: bool, limit: int) -> list[IndexRow]:
    return await NEWEST.all(conn, team_id=team_id, project_id=project_id, with_files=with_files, limit=limit)


async def closed(conn: Conn, team_id: UUID, project_id: UUID, *, looked_at: int, limit: int) -> list[IndexRow]:
    """Of the newest rows those that are done or no longer hold, the newest first."""
    return await CLOSED.all(conn, team_id=team_id, project_id=project_id, with_files=False, looked_at=looked_at, limit=limit)


async def history(conn: Conn, team_id: UUID, project_id: UUID, *, with_files: bool, limit: int) -> list[IndexRow]:
    """What came from the repository, of the newest rows: first commits that give a reason."""
    return await HISTORY.all(conn, team_id=team_id, project_id=project_id, with_files=with_files, limit=limit, looked_at=_LOOKED_AT)


async def shared(conn: Conn, team_id: UUID, project_id: UUID, *, with_files: bool, limit: int) -> list[IndexRow]:
    """The newest of scope `team` in the team's other projects."""
    return await SHARED.all(conn, team_id=team_id, project_id=project_id, with_files=with_files, limit=limit)


async def summaries(conn: Conn, team_id: UUID, project_id: UUID, limit: int) -> list[IndexRow]:
    """The newest first."""
    return await SUMMARIES.all(conn, team_id=team_id, project_id=project_id, with_files=False, limit=limit)


async def of_session(
    conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID, *, with_files: bool, limit: int
) -> list[IndexRow]:
    return await OF_SESSION.all(
        conn, team_id=team_id, project_id=project_id, session_id=session_id, with_files=with_files, limit=limit
    )


async def of_turns(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    session_ids: Collection[UUID],
    turn_numbers: Sequence[int],
    *,
    with_files: bool,
    limit: int,
) -> list[IndexRow]:
    """What was drawn of these turns of these sessions."""
    return await OF_TURNS.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        session_ids=list(session_ids),
        turn_numbers=list(turn_numbers),
        with_files=with_files,
        limit=limit,
    )


async def touching(conn: Conn, team_id: UUID, project_id: UUID, names: Sequence[str], limit: int) -> list[IndexRow]:
    """What seems to be about a file of one of these names, the newest first."""
    return await TOUCHING.all(conn, team_id=team_id, project_id=project_id, names=list(names), with_files=True, limit=limit)


async def details(conn: Conn, team_id: UUID, numbers: Sequence[int]) -> dict[int, ObservationDetails]:
    return {row.number: row for row in await DETAILS.all(conn, team_id=team_id, numbers=list(numbers))}


@query(f"""
    SELECT summary, left(content, 2800) AS content FROM observations
     WHERE team_id = %(team_id)s AND number = %(number)s AND {LIVE}
    """)
async def summary(conn: Conn, team_id: UUID, number: int) -> SummaryText | None: ...


@asynccontextmanager
async def limit_statements(conn: Conn) -> AsyncGenerator[None]:
    """Within it a statement that takes longer is cancelled (psycopg's QueryCanceled). What is set there ends with it.

    By setting it back: psycopg forgets what is prepared when something is rolled back.
    """
    async with conn.transaction():
        timeout = await LIMIT_STATEMENTS.first(conn)
        yield
        await RESTORE_PLANNER.run(conn, timeout=timeout)


# The planner does not know the words of a list, and takes reading the whole table, or all of the team, for the quickest way to the
# first of a few: 50 ms a word in 10,000 rows, where the index of words takes one.
@query("SELECT set_config('enable_seqscan', 'off', true) || set_config('enable_indexscan', 'off', true)")
async def look_up_words(conn: Conn) -> None:
    """Let the planner take no index but those of words, until the end of `limit_statements`."""
    ...


async def near_observations(
    conn: Conn,
    project_id: UUID,
    session_id: UUID | None,
    *,
    lexemes: Sequence[str],
    weights: Sequence[float],
    near: Mapping[UUID, float],
    most: int,
    limit: int,
) -> list[NearObservation]:
    """These observations, with their cosines, and the `limit` ones with the heaviest of up to 63 lexemes.

    They are of the project, or shared with the team; none is of the session itself. At most `most` of those with a lexeme are read.
    """
    return await NEAR_OBSERVATIONS.all(
        conn,
        project_id=project_id,
        session_id=session_id,
        quoted=[quote_lexeme(lexeme) for lexeme in lexemes],
        weights=list(weights),
        near_ids=list(near),
        cosines=list(near.values()),
        most=most,
        limit=limit,
    )


# A project may be called by its folder. The working folder is that of a session's first and of its newest event.
KNOWN_FOLDERS = Query(
    KnownFolder,
    """
    SELECT DISTINCT s.project_id, coalesce(s.metadata ->> 'root', '') AS root, coalesce(f.cwd, '') AS cwd
      FROM (SELECT id, team_id, project_id, metadata FROM server_sessions
             WHERE team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR project_id = ANY(%(project_ids)s::uuid[]))
             ORDER BY started_at DESC LIMIT %(sessions)s) s
     CROSS JOIN LATERAL (
           SELECT s.metadata ->> 'cwd' AS cwd
            UNION
           (SELECT e.payload ->> 'cwd' FROM agent_events e
             WHERE e.project_id = s.project_id AND e.server_session_id = s.id AND e.team_id = s.team_id
             ORDER BY e.occurred_at LIMIT 1)
            UNION
           (SELECT e.payload ->> 'cwd' FROM agent_events e
             WHERE e.project_id = s.project_id AND e.server_session_id = s.id AND e.team_id = s.team_id
             ORDER BY e.occurred_at DESC LIMIT 1)) f
     WHERE coalesce(f.cwd, s.metadata ->> 'root', '') <> ''
     UNION
    SELECT p.id, n.name, n.name FROM projects p
     CROSS JOIN LATERAL (SELECT p.canonical_id AS name
                          UNION
                         SELECT a.alias FROM project_aliases a WHERE a.project_id = p.id AND a.team_id = p.team_id) n
     WHERE p.team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR p.id = ANY(%(project_ids)s::uuid[]))
       AND n.name ~ '^(/|[A-Za-z]:/)'
     LIMIT 500
    """,
    prepare=False,
)


async def known_folders(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, *, sessions: int) -> list[KnownFolder]:
    """The folders of the newest so many sessions of the projects, None for the team's, and those that projects are called by."""
    ids = None if project_ids is None else list(project_ids)
    return await KNOWN_FOLDERS.all(conn, team_id=team_id, project_ids=ids, sessions=sessions)


# The vector has each file's name by itself, so the index finds those that name one of that name; which path it is, their lists say.
# A path is known by its end: agents say it from the root of the disk, observations mostly from that of the project.
@unprepared_query("""
    SELECT id, coalesce(files_modified, '{}') AS files_modified, coalesce(files_read, '{}') AS files_read, created_at
      FROM observations_in_team
     WHERE project_id = %(project_id)s
       AND (%(session_id)s::uuid IS NULL OR server_session_id IS DISTINCT FROM %(session_id)s::uuid)
       AND content_search @@ search_all((SELECT p.search_language FROM projects p WHERE p.id = %(project_id)s), %(name)s)
       AND EXISTS (SELECT FROM unnest(coalesce(files_modified, '{}') || coalesce(files_read, '{}')) AS file
                    WHERE right('/' || replace(file, '\\', '/'), length(%(name)s) + 1) = '/' || %(name)s)
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """)
async def about_file(conn: Conn, project_id: UUID, session_id: UUID | None, name: str, limit: int) -> list[FileMention]:
    """The newest observations of the project that name a file of that name, in whatever folder; none of the session itself."""
    ...
