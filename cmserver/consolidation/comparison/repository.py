"""The SQL that finds which stored observations to compare a text with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import LiteralString
from uuid import UUID

from cmserver.base.sql import Conn, Query, unprepared_query
from cmserver.consolidation.comparison.model import NewRow, StoredVector, TextHash
from cmserver.embeddings.model import QueryVector
from cmserver.observations.model import LIVE_O, ManualObservation, Scope
from cmserver.recall.search.model import NearText

OWNS: set[str] = set()

_FIRST_NEAREST = 30
"""How many of the nearest vectors are read to find those that may be compared."""
_MAX_WORDS = 12
"""How many of the longest words of a text are looked up: other texts rarely have them."""

_COMPARABLE: LiteralString = f"""{LIVE_O}
       AND o.scope = %(scope)s AND o.kind <> 'summary' AND o.origin <> 'git' AND o.type = ANY(%(types)s)
       AND o.caller_type IS NOT DISTINCT FROM %(caller_type)s"""

# Which differences do not count is said once, in the function.
HASH_OF = Query(
    bytes,
    """
    SELECT observation_hash(%(title)s::text, %(subtitle)s::text, %(narrative)s::text, %(facts)s::text[], %(content)s::text)
    """,
)
HASHES = Query(
    TextHash,
    f"""
    SELECT o.id, observation_hash(o.title, o.subtitle, o.narrative, o.facts, o.content) AS hash
      FROM observations o WHERE o.team_id = %(team_id)s AND o.id = ANY(%(ids)s) AND {LIVE_O}
    """,
)

# By the index on the hash. Through the view, because the function of the hash cannot use its index under a policy.
EXACT = Query(
    UUID,
    """
    SELECT id FROM observations_in_team
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND kind = 'manual'
       AND observation_hash(title, subtitle, narrative, facts, content) = %(hash)s
       AND scope = ANY(%(scopes)s) AND type = %(type)s AND caller_type IS NOT DISTINCT FROM %(caller_type)s::text
     ORDER BY scope = %(scope)s DESC, number LIMIT 1
    """,
)

# All vectors of the project, exactly. One of a text that has changed since says nothing of what stands there now.
NEAREST = Query(
    NearText,
    f"""
    SELECT o.id, 1 - near.distance AS cosine
      FROM (SELECT e.observation_id, e.embedding <=> %(vector)s::halfvec AS distance
              FROM observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.project_id = %(project_id)s
               AND e.embedding IS NOT NULL AND e.observation_id IS NOT NULL AND NOT e.is_outdated
               AND (e.expires_at IS NULL OR e.expires_at > now())
             ORDER BY distance LIMIT %(first)s) near
      JOIN observations o ON o.id = near.observation_id AND o.team_id = %(team_id)s
     WHERE {_COMPARABLE}
     ORDER BY near.distance, o.number LIMIT %(limit)s
    """,
    prepare=False,
)

# Through the view, because @@ cannot use its index under a policy.
BY_WORDS = Query(
    UUID,
    f"""
    WITH words AS MATERIALIZED (
        SELECT string_agg('''' || replace(replace(u.lexeme, '\\', '\\\\'), '''', '''''') || '''', ' | ')::tsquery AS any_of
          FROM (SELECT lexeme FROM unnest(search_words((SELECT search_language FROM projects WHERE id = %(project_id)s), %(text)s))
                 WHERE positions IS NOT NULL
                 ORDER BY length(lexeme) DESC, lexeme LIMIT %(max_words)s) u
    )
    SELECT o.id
      FROM observations_in_team o CROSS JOIN words w
     WHERE o.project_id = %(project_id)s AND o.content_search @@ w.any_of AND {_COMPARABLE}
     ORDER BY ts_rank(o.content_search, w.any_of) DESC, o.number LIMIT %(limit)s
    """,
    prepare=False,
)


# -- new observations of all projects, as the owner


# In the binary form of pgvector: two bytes of length, two of nothing, and two for each number. The person counts where a team does
# not let every member read others' words: what is merged of two people's is nobody's to read.
VECTORS = Query(
    StoredVector,
    f"""
    SELECT o.id, o.number, o.scope, o.type, o.caller_type, halfvec_send(e.embedding) AS vector,
           CASE WHEN (SELECT words <> 'members' FROM teams WHERE id = %(team_id)s) THEN o.person_id END AS person_id
      FROM observation_embeddings e
      JOIN observations o ON o.id = e.observation_id AND o.team_id = e.team_id
     WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.project_id = %(project_id)s AND e.embedding IS NOT NULL
       AND NOT e.is_outdated AND {LIVE_O} AND o.kind <> 'summary' AND o.origin <> 'git'
       AND (%(ids)s::uuid[] IS NULL OR o.id = ANY(%(ids)s::uuid[]))
       AND o.id > %(after)s ORDER BY o.id LIMIT %(limit)s
    """,
    prepare=False,
)


async def hash_of(conn: Conn, observation: ManualObservation) -> bytes:
    """The hash of the text, as `hashes` gives it for stored ones."""
    return await HASH_OF.one(
        conn,
        title=observation.title,
        subtitle=observation.subtitle,
        narrative=observation.narrative,
        facts=observation.facts,
        content=observation.content,
    )


async def hashes(conn: Conn, team_id: UUID, ids: Collection[UUID]) -> dict[UUID, bytes]:
    """The hash of the text of each that is shown: equal where only spaces, Markdown and punctuation at the ends differ."""
    return {row.id: row.hash for row in await HASHES.all(conn, team_id=team_id, ids=list(ids))}


async def are_equal(conn: Conn, team_id: UUID, one: UUID, other: UUID) -> bool:
    """Whether both are shown and have the same text by their hashes."""
    by_id = await hashes(conn, team_id, [one, other])
    return len(by_id) == 2 and by_id[one] == by_id[other]


async def exact(
    conn: Conn, team_id: UUID, observation: ManualObservation, text_hash: bytes, scopes: Collection[Scope]
) -> UUID | None:
    """The first observation written by hand in the project that has the same text and type, in one of the scopes; its own first."""
    return await EXACT.first(
        conn,
        team_id=team_id,
        project_id=observation.project_id,
        hash=text_hash,
        scope=observation.scope,
        scopes=list(scopes),
        type=observation.type,
        caller_type=observation.caller_type,
    )


async def nearest(
    conn: Conn, team_id: UUID, observation: ManualObservation, types: Sequence[str], vector: QueryVector, limit: int
) -> list[NearText]:
    """The observations of the project with the nearest vectors that may say the same, nearest first."""
    return await NEAREST.all(
        conn,
        team_id=team_id,
        project_id=observation.project_id,
        model_id=vector.model_id,
        vector=vector.vector,
        first=_FIRST_NEAREST,
        scope=observation.scope,
        types=list(types),
        caller_type=observation.caller_type,
        limit=limit,
    )


async def by_words(conn: Conn, observation: ManualObservation, types: Sequence[str], text: str, limit: int) -> list[UUID]:
    """The observations of the project that share the most of the text's longest words and may say the same."""
    return await BY_WORDS.all(
        conn,
        project_id=observation.project_id,
        text=text,
        max_words=_MAX_WORDS,
        scope=observation.scope,
        types=list(types),
        caller_type=observation.caller_type,
        limit=limit,
    )


# `waits` until it has its vector, but no longer than that: an embedder that is away must not hold up all that comes after it.
@unprepared_query(f"""
    SELECT o.id, o.number, o.project_id, p.consolidation, {LIVE_O} AND o.kind <> 'summary' AND o.origin <> 'git' AS is_compared,
           e.embedding IS NOT NULL AND NOT e.is_outdated AS has_vector,
           coalesce((e.embedding IS NULL OR e.is_outdated) AND e.next_at < 'infinity'
                    AND o.created_at > now() - make_interval(secs => %(wait_seconds)s), false) AS waits
      FROM observations o
      JOIN projects p ON p.id = o.project_id AND p.team_id = o.team_id
      LEFT JOIN observation_embeddings e
        ON e.observation_id = o.id AND e.model_id = %(model_id)s::smallint AND e.team_id = o.team_id
     WHERE o.team_id = %(team_id)s AND o.number > %(after)s
     ORDER BY o.number LIMIT %(limit)s
    """)
async def new(conn: Conn, team_id: UUID, *, after: int, model_id: int | None, wait_seconds: float, limit: int) -> list[NewRow]:
    """The next observations of the team by number, with whether they have their vector by the model, or wait for it."""
    ...


async def vectors(
    conn: Conn, team_id: UUID, project_id: UUID, model_id: int, *, ids: Sequence[UUID] | None = None, after: UUID, limit: int
) -> list[StoredVector]:
    """The vectors of the project's live observations (or of these), by id, beginning after one."""
    listed = None if ids is None else list(ids)
    return await VECTORS.all(conn, team_id=team_id, project_id=project_id, model_id=model_id, ids=listed, after=after, limit=limit)
