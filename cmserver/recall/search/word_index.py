"""What the texts of a scope have of the words of many queries, in memory: it answers as the statements of a search do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from math import log, sqrt
from operator import mul
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.embeddings.model import QueryVector
from cmserver.recall.search import repository
from cmserver.recall.search.model import (
    MatchedWords,
    NeighbourRow,
    RankedRow,
    Ranking,
    ScopeStatistics,
    SearchRequest,
    WordsOfText,
)
from cmserver.recall.search.repository import FIRST_TIER, MAX_TURNS, SMALL_SCOPE, WITH_NEIGHBOURS

WordsAndScope = tuple[Sequence[str], ScopeStatistics]
"""The words of a query, and what its scores are relative to."""


class WordIndex:
    """The observations and turns of some projects by the words of some queries: `matched` and `ranked` as of a search's repository.

    It is for the first tier of searches without filters and vectors. Make it by `read_index`.
    """

    def __init__(self, observations: Postings, turns: Postings) -> None:
        self._observations = observations
        self._turns = turns
        self._matched: dict[tuple[tuple[str, ...], int, bool, bool], MatchedWords] = {}
        self.beside: dict[UUID, NeighbourRow] = {}

    async def matched(
        self,
        conn: Conn,  # noqa: ARG002 - the signature of the statement's function
        team_id: UUID,  # noqa: ARG002
        request: SearchRequest,  # noqa: ARG002
        lexemes: Sequence[str],
        statistics: ScopeStatistics,
        ranking: Ranking,  # noqa: ARG002
        limit: int,
        *,
        turns: bool = False,
        apart: bool = False,
    ) -> MatchedWords:
        """The first `limit` observations, or `turns`, by their words."""
        return self.match(lexemes, statistics, limit, turns=turns, apart=apart)

    def match(
        self, lexemes: Sequence[str], statistics: ScopeStatistics, limit: int, *, turns: bool = False, apart: bool = False
    ) -> MatchedWords:
        """As `matched`; what was asked before is remembered."""
        key = (tuple(lexemes), limit, turns, apart)
        if key not in self._matched:
            postings = self._turns if turns else self._observations
            self._matched[key] = postings.match(lexemes, statistics, limit, turns=turns, apart=apart)
        return self._matched[key]

    async def ranked(
        self,
        conn: Conn,  # noqa: ARG002 - the signature of the statement's function
        team_id: UUID,  # noqa: ARG002
        request: SearchRequest,  # noqa: ARG002
        lexemes: Sequence[str],
        statistics: ScopeStatistics,  # noqa: ARG002
        ranking: Ranking,
        by_words: Sequence[UUID],
        near: Sequence[UUID],  # noqa: ARG002
        vector: QueryVector | None,  # noqa: ARG002
        *,
        turns: bool = False,
    ) -> list[RankedRow]:
        """What was found by words, and the neighbours of the very first, in no order."""
        places = {id_: place for place, id_ in enumerate(by_words, 1)}
        if turns:
            score = self._turns.scorer(lexemes)
            return [
                RankedRow(
                    id=row.id, bm25=score(row.id), place=places[row.id], is_secondary=row.is_secondary, created_at=row.created_at
                )
                for id_ in by_words
                if (row := self.beside.get(id_)) is not None
            ]
        score = self._observations.scorer(lexemes)
        first_tier = FIRST_TIER if ranking.neighbours else 0
        rows: list[RankedRow] = []

        def add(row: NeighbourRow, place: int, before: UUID | None, after: UUID | None) -> None:
            rows.append(
                RankedRow(
                    id=row.id,
                    bm25=score(row.id),
                    neighbours=score(before) + score(after),
                    neighbour_count=(before is not None) + (after is not None),
                    place=place,
                    is_secondary=row.is_secondary,
                    created_at=row.created_at,
                )
            )

        lent: dict[UUID, tuple[int, UUID | None, UUID | None]] = {}
        for id_, place in places.items():
            row = self.beside.get(id_)
            if row is None:
                continue
            before, after = (row.before, row.after) if place <= first_tier else ([], [])
            add(row, place, _first(before), _first(after))
            if place <= WITH_NEIGHBOURS:
                for neighbour, before_it, after_it in (
                    (_first(before), _first(before[1:]), id_),
                    (_first(after), id_, _first(after[1:])),
                ):
                    if neighbour is not None and neighbour not in places and place < lent.get(neighbour, (place + 1,))[0]:
                        lent[neighbour] = (place, before_it, after_it)
        for id_, (place, before, after) in lent.items():
            if (row := self.beside.get(id_)) is not None:
                add(row, place, before, after)
        return rows


class Postings:
    """The texts that have a word, by word."""

    def __init__(self, lexemes: Sequence[str], texts: Iterable[WordsOfText]) -> None:
        self._ids: list[UUID] = []
        self._created_at: list[datetime] = []
        self._by_word: dict[str, dict[int, float]] = {lexeme: {} for lexeme in lexemes}
        self._document: dict[UUID, int] = {}
        self._scores: dict[tuple[str, ...], dict[int, float]] = {}
        shares = list(self._by_word.values())
        for document, text in enumerate(texts):
            self._ids.append(text.id)
            self._created_at.append(text.created_at)
            self._document[text.id] = document
            for place, share in zip(text.places, text.shares, strict=True):
                shares[place - 1][document] = share

    def match(self, lexemes: Sequence[str], statistics: ScopeStatistics, limit: int, *, turns: bool, apart: bool) -> MatchedWords:
        """What MATCHED and MATCHED_TURNS of a search's repository say."""
        words = [self._by_word[lexeme] for lexeme in lexemes]
        together = [] if turns else statistics.together
        size = min(statistics.turn_count, MAX_TURNS) if turns else statistics.documents
        leading = range(len(words)) if turns else statistics.leading
        scores: dict[int, float] = {}
        for place in leading:
            scores.update(dict.fromkeys(words[place], 0.0))
        if turns and len(scores) > MAX_TURNS:
            newest = nlargest(MAX_TURNS, ((self._created_at[it], self._ids[it], it) for it in scores))
            scores = {document: 0.0 for _, _, document in newest}
        found_in: list[float] = []
        idfs: list[float] = []
        for place, word in enumerate(words):
            is_whole = not turns and place in leading
            parts = word if is_whole else {document: share for document, share in word.items() if document in scores}
            found = float(len(parts)) if turns or (is_whole and not together) else statistics.found_in[place]
            idf = statistics.idfs[place] if turns else log(1 + max(size - found + 0.5, 0.5) / (found + 0.5))
            for document, share in parts.items():
                scores[document] += idf * share
            found_in.append(found)
            idfs.append(idf)
        self._scores[tuple(lexemes)] = scores
        matched = scores
        if together:
            having = set(words[together[0]]).intersection(*(words[place] for place in together[1:]))
            matched = {document: score for document, score in scores.items() if (document in having) != apart}
        mean, variance = self._spread(words, idfs, found_in, size, matched)
        return MatchedWords(
            ids=self._first(matched, limit),
            best=_rounded(max(matched.values(), default=0.0)),
            matching=len(matched),
            found_in=found_in,
            mean=mean,
            deviation=sqrt(max(variance, 0)),
        )

    def _spread(
        self,
        words: Sequence[Mapping[int, float]],
        idfs: Sequence[float],
        found_in: Sequence[float],
        size: int,
        matched: Mapping[int, float],
    ) -> tuple[float, float]:
        """The mean and the variance of the scores, as if words were independent."""
        mean = variance = 0.0
        for word, idf, found in zip(words, idfs, found_in, strict=True):
            shares = [share for document, share in word.items() if document in matched]
            average = sum(shares) / len(shares) if shares else 0.0
            square = sum(map(mul, shares, shares)) / len(shares) if shares else 0.0
            part = min((found + 0.5) / (size + 1), 1)
            mean += part * idf * average
            variance += part * idf * idf * square - (part * idf * average) ** 2
        return mean, variance

    def _first(self, matched: Mapping[int, float], limit: int) -> list[UUID]:
        """The best, the newer first where scores are the same."""
        scores = sorted(matched.values(), reverse=True)
        least = scores[limit - 1] - 1e-8 if len(scores) > limit else 0.0  # rounding makes some the same
        ranked = [
            (_rounded(it), self._created_at[document], self._ids[document]) for document, it in matched.items() if it >= least
        ]
        return [id_ for _, _, id_ in nlargest(limit, ranked)]

    def scorer(self, lexemes: Sequence[str]) -> Callable[[UUID | None], float]:
        """The BM25 of a text by the words that were matched; 0 for None, and for a text without a leading word."""
        scores, documents = self._scores.get(tuple(lexemes), {}), self._document
        return lambda id_: _rounded(scores.get(documents.get(id_, -1), 0.0)) if id_ is not None else 0.0


async def read_index(conn: Conn, project_ids: Sequence[UUID], queries: Collection[WordsAndScope], ranking: Ranking) -> WordIndex:
    """The index of the projects' texts by the words of the queries, which have one or more, and whose scope is the same."""
    scope = next(iter(queries))[1]
    lexemes = list(dict.fromkeys(lexeme for words, _ in queries for lexeme in words))
    leading = list(dict.fromkeys(words[place] for words, statistics in queries for place in statistics.leading))
    found: list[list[WordsOfText]] = []
    for turns, size, mean_words in ((False, scope.documents, scope.mean_words), (True, scope.turn_count, scope.turn_words)):
        is_searched = scope.turn_count > 0 if turns else not scope.are_turns
        words = (lexemes, lexemes if turns else leading, ranking, mean_words)
        found.append(
            await repository.read_texts(conn, project_ids, *words, whole=size <= SMALL_SCOPE, turns=turns) if is_searched else []
        )
    index = WordIndex(*(Postings(lexemes, texts) for texts in found))
    ids, turn_ids = set[UUID](), set[UUID]()
    for words, statistics in queries:
        await asyncio.sleep(0)  # others are answered meanwhile
        if not statistics.are_turns:
            matched = index.match(words, statistics, FIRST_TIER)
            ids.update(matched.ids)
            if statistics.together and matched.matching <= FIRST_TIER:
                ids.update(index.match(words, statistics, FIRST_TIER - matched.matching, apart=True).ids)
            statistics = msgspec.structs.replace(statistics, found_in=matched.found_in)  # noqa: PLW2901 - as a search goes on with them
        if statistics.turn_count:
            turn_ids.update(index.match(words, statistics, FIRST_TIER, turns=True).ids)
    index.beside = {row.id: row for row in await repository.beside(conn, project_ids, ids)}
    missing = {id_ for row in index.beside.values() for id_ in (*row.before[:1], *row.after[:1])} - ids
    rows = [*await repository.beside(conn, project_ids, missing), *await repository.found_turns(conn, turn_ids)]
    index.beside |= {row.id: row for row in rows}
    return index


def _first(ids: Sequence[UUID]) -> UUID | None:
    return ids[0] if ids else None


def _rounded(score: float) -> float:
    return round(score * 1e9) / 1e9
