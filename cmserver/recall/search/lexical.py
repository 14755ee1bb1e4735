"""What shares words with a query: BM25 within the scope."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.recall.search import repository
from cmserver.recall.search.model import Asked, Ranked, Ranking, Sampled, Term
from cmserver.recall.search.score import known_share, unseen_weight
from cmserver.recall.search.terms import SMALL, idf, leading


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a query, and what the newest documents say about them. `any_of` is the tsquery whose hits are looked at."""

    lexemes: list[str]
    terms: list[Term]
    any_of: str
    documents: int
    length: float
    """Of a document on average, in words."""
    hits: float
    """How many documents have any of them, as the sample has it."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What shares words with the query, and how rare each of these is: `idfs` in the order of the lexemes, 0 where none has it."""

    ranked: list[Ranked]
    idfs: list[float]
    most: float
    """The BM25 of a document that has each word once, or the best that was found if that is more."""
    known: float
    """How much of the query is known here, 0 to 1."""


async def look_up(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, lexemes: list[str]) -> Words:
    """How common the words are in the scope."""
    sampled = await repository.sampled(conn, team_id, project_ids, lexemes)
    terms, any_of = leading(lexemes, sampled)
    first = sampled[0]
    return Words(
        lexemes=lexemes,
        terms=terms,
        any_of=any_of,
        documents=first.documents,
        length=max(first.words, 1.0),
        hits=_any(sampled) * first.documents,
    )


async def fitting(conn: Conn, asked: Asked, words: Words, ranking: Ranking, limit: int) -> Found:
    """The observations that fit the words and the filters best."""
    rows = await repository.rank(
        conn,
        asked.project_ids,
        words.terms,
        words.any_of,
        asked.filters,
        k1=ranking.k1,
        b=ranking.b,
        documents=words.documents,
        words=words.length,
        whole=words.documents <= SMALL,
        limit=limit,
    )
    return _found(rows)


async def prompts(conn: Conn, asked: Asked, words: Words, ranking: Ranking, limit: int) -> Found:
    """The prompts of users that fit them best."""
    rows = await repository.prompts(
        conn,
        asked.project_ids,
        words.lexemes,
        asked.filters,
        k1=ranking.k1,
        b=ranking.b,
        limit=limit,
    )
    return _found(rows)


async def these(conn: Conn, ids: Sequence[UUID], words: Words, found: Found, ranking: Ranking) -> list[Ranked]:
    """How well these fit, which were found otherwise."""
    used = [(lexeme, weight) for lexeme, weight in zip(words.lexemes, found.idfs, strict=True) if weight > 0]
    if not ids or not used:
        return []
    lexemes, idfs = zip(*used, strict=True)
    return await repository.rank_these(conn, ids, lexemes, idfs, k1=ranking.k1, b=ranking.b, words=words.length)


def _found(rows: Sequence[Ranked]) -> Found:
    """The first row is there even where nothing was found: it says how common the words are."""
    best = rows[0]
    weights = [idf(best.documents, each) for each in best.found_in]
    unseen = [each == 0 for each in best.found_in]
    strange = unseen_weight(best.documents)
    return Found(
        ranked=[row for row in rows if row.id is not None],
        idfs=[0.0 if none else weight for weight, none in zip(weights, unseen, strict=True)],
        most=max(best.score, sum(weight * strange if none else weight for weight, none in zip(weights, unseen, strict=True))),
        known=known_share(sum(unseen), len(unseen), best.documents),
    )


def _any(sampled: Sequence[Sampled]) -> float:
    """The share of the documents that have any of the words, as if they were strewn about."""
    without = 1.0
    for one in sampled:
        without *= 1 - one.found_in / max(one.sampled, 1)
    return 1 - without
