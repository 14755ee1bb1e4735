"""The SQL of many searches: the words of all queries, what has any of them, and what stands beside what was found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query, query
from cmserver.base.text import quote_lexeme
from cmserver.recall.search.model import Ranking, WordSample
from cmserver.recall.search.repository import (
    BM25,
    EVEN_WEIGHTS,
    KNOWN_LANGUAGES,
    LANGUAGE_CHARS,
    LANGUAGES_OF_SCOPE,
    LEXEMES_OF_TEXT,
    MAX_COUNTED,
    MAX_TURNS,
    MIN_LEAD,
    MIN_STOP_WORDS,
    RANKS,
    SAMPLE,
    SCOPE_OF_WORDS,
    SEES_SHARED,
    TURNS,
    WEIGHTS,
)

OWNS: set[str] = set()


class SharedWord(WordSample, frozen=True, kw_only=True):
    """A word of several queries; `texts` are which of them, from 1, and `places` its place in each."""

    texts: list[int]
    places: list[int]


class WordsOfText(msgspec.Struct, frozen=True, kw_only=True):
    """What an observation or a turn has of the words: their places among those asked for, from 1, and the BM25 of each without its
    rarity.
    """

    id: UUID
    created_at: datetime
    places: list[int]
    shares: list[float]


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """An observation, and the two before and after it in its session, the nearest first; or a turn, with neither."""

    id: UUID
    created_at: datetime
    is_secondary: bool
    before: list[UUID]
    after: list[UUID]


WORDS = Query(
    SharedWord,
    f"""
    WITH {LANGUAGES_OF_SCOPE}, asked AS MATERIALIZED (
        SELECT q.text, l.lexeme, row_number() OVER (PARTITION BY q.text ORDER BY l.place, l.lexeme) AS place,
               sum(CASE WHEN length(l.lexeme) = 2 AND is_unsegmented(l.lexeme) THEN 0.5 ELSE 1 END)
                   OVER (PARTITION BY q.text ORDER BY l.place, l.lexeme) AS words
          FROM unnest(%(texts)s::text[]) WITH ORDINALITY AS q (words, text)
         CROSS JOIN LATERAL (WITH {LEXEMES_OF_TEXT.replace("%(text)s", "q.words")} SELECT lexeme, place FROM lexemes) l
    ), chosen AS MATERIALIZED (
        SELECT lexeme, array_agg(text::int ORDER BY text) AS texts, array_agg(place::int ORDER BY text) AS places
          FROM asked WHERE words <= %(limit)s GROUP BY lexeme
    ), {SCOPE_OF_WORDS}, found AS MATERIALIZED (
        SELECT u.lexeme, array_agg(place ORDER BY place) AS found_in
          FROM sampled CROSS JOIN LATERAL unnest(content_search) u WHERE u.lexeme IN (SELECT lexeme FROM chosen) GROUP BY u.lexeme
    )
    SELECT c.lexeme, coalesce(f.found_in, '{{}}') AS found_in, c.texts, c.places,
           s.sampled, s.words, s.turn_words, s.documents, s.rows, s.projects, s.turns
      FROM chosen c LEFT JOIN found f ON f.lexeme = c.lexeme CROSS JOIN scope s
    """,
    prepare=False,
)

_TERMS: LiteralString = """terms AS MATERIALIZED (
        SELECT lexeme, quoted::tsquery AS word, place::int AS place
          FROM unnest(%(lexemes)s::text[], %(quoted)s::text[]) WITH ORDINALITY AS t (lexeme, quoted, place)
    )"""
_COLUMNS: LiteralString = "o.id, o.created_at, o.content_words, o.content_search"
_ANY: LiteralString = "o.content_search @@ %(any)s::tsquery"
_PARTS: LiteralString = f"""
        SELECT o.id, o.created_at, t.place, {BM25} AS share
          FROM documents o
         CROSS JOIN LATERAL unnest(o.content_search) u
          JOIN terms t ON t.lexeme = u.lexeme
         CROSS JOIN LATERAL {RANKS} r"""
_BY_TEXT: LiteralString = "SELECT id, created_at, array_agg(place) AS places, array_agg(share) AS shares"

OBSERVATIONS = Query(
    WordsOfText,
    f"""
    WITH {_TERMS}, documents AS MATERIALIZED (
        SELECT {_COLUMNS} FROM observations_in_team o WHERE %(whole)s AND o.project_id = ANY(%(project_ids)s::uuid[])
         UNION ALL
        SELECT {_COLUMNS} FROM observations_in_team o
         WHERE NOT %(whole)s AND o.project_id = ANY(%(project_ids)s::uuid[]) AND {_ANY}
         UNION ALL
        SELECT {_COLUMNS} FROM observations_in_team o
         WHERE o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) AND {SEES_SHARED} AND ({_ANY}) IS TRUE
    )
    {_BY_TEXT} FROM ({_PARTS}) parts GROUP BY id, created_at
    """,
    prepare=False,
)
TURNS_WITH_WORDS = Query(
    WordsOfText,
    f"""
    WITH {_TERMS}, documents AS MATERIALIZED (
        SELECT {_COLUMNS} FROM {TURNS} o WHERE %(whole)s AND o.project_id = ANY(%(project_ids)s::uuid[])
         UNION ALL
        SELECT {_COLUMNS} FROM {TURNS} o WHERE NOT %(whole)s AND o.project_id = ANY(%(project_ids)s::uuid[]) AND {_ANY}
    )
    {_BY_TEXT}
      FROM (SELECT *, row_number() OVER (PARTITION BY place ORDER BY created_at DESC, id DESC) AS age FROM ({_PARTS}) p) parts
     WHERE age <= %(most)s GROUP BY id, created_at
    """,
    prepare=False,
)

_IN_SAME_SESSION: LiteralString = """
               SELECT n.id FROM observations_in_team n
                WHERE n.project_id = o.project_id AND n.server_session_id = o.server_session_id
                  AND (n.project_id = ANY(%(project_ids)s::uuid[]) OR n.scope = 'team')"""


@query(f"""
    SELECT o.id, o.created_at, o.kind = 'summary' AS is_secondary,
           ARRAY({_IN_SAME_SESSION}
                  AND (n.created_at, n.id) < (o.created_at, o.id) ORDER BY n.created_at DESC, n.id DESC LIMIT 2) AS before,
           ARRAY({_IN_SAME_SESSION}
                  AND (n.created_at, n.id) > (o.created_at, o.id) ORDER BY n.created_at, n.id LIMIT 2) AS after
      FROM unnest(%(ids)s::uuid[]) AS f (id)
     CROSS JOIN LATERAL (SELECT * FROM observations_in_team o WHERE o.id = f.id OFFSET 0) o
""")
async def beside(conn: Conn, project_ids: Sequence[UUID], ids: Collection[UUID]) -> list[Beside]: ...


@query("""
    SELECT j.id, j.created_at, '{}'::uuid[] AS before, '{}'::uuid[] AS after,
           (j.reply IS NULL OR j.agent_id IS NOT NULL
            OR EXISTS (SELECT FROM observations_in_team n
                        WHERE n.project_id = j.project_id AND n.server_session_id = j.server_session_id
                          AND n.turn_number = j.number AND n.kind <> 'summary')) AS is_secondary
      FROM unnest(%(ids)s::uuid[]) AS f (id)
     CROSS JOIN LATERAL (SELECT * FROM turns_in_team o WHERE o.id = f.id OFFSET 0) j
""")
async def turns(conn: Conn, ids: Collection[UUID]) -> list[Beside]: ...


async def words(
    conn: Conn,
    team_id: UUID,
    project_ids: Sequence[UUID],
    texts: Sequence[str],
    limit: int,
    documents: int | None,
    turns: int | None,
) -> list[SharedWord]:
    """The lexemes of the first `limit` words of each text, and how common each is; the rest as of one search."""
    return await WORDS.all(
        conn,
        known_languages=KNOWN_LANGUAGES,
        language_chars=LANGUAGE_CHARS,
        min_stop_words=MIN_STOP_WORDS,
        min_lead=MIN_LEAD,
        team_id=team_id,
        project_ids=list(project_ids),
        texts=list(texts),
        limit=limit,
        sample=SAMPLE,
        max_count=MAX_COUNTED,
        documents=documents,
        turns=turns,
    )


async def read_texts(
    conn: Conn,
    project_ids: Sequence[UUID],
    lexemes: Sequence[str],
    leading: Sequence[str],
    ranking: Ranking,
    mean_words: float,
    *,
    whole: bool,
    turns: bool,
) -> list[WordsOfText]:
    """What the observations of the projects, or their `turns`, have of the words. Without `whole` only what has a leading word; of
    a word that many turns have, the newest that a search may score.
    """
    return await (TURNS_WITH_WORDS if turns else OBSERVATIONS).all(
        conn,
        project_ids=list(project_ids),
        lexemes=list(lexemes),
        quoted=[quote_lexeme(lexeme) for lexeme in lexemes],
        any=" | ".join(map(quote_lexeme, leading)),
        weights=list(EVEN_WEIGHTS if turns else WEIGHTS),
        k1=ranking.k1,
        b=ranking.b,
        mean_words=mean_words,
        whole=whole,
        most=MAX_TURNS,
    )
