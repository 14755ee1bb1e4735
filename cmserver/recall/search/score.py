"""Scores a document by how far its words and meaning stand out of the scope. Where the numbers come from: docs/why/search.md."""

from __future__ import annotations

import re
from datetime import datetime
from math import sqrt
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation
from cmserver.recall.index.selection import is_similar
from cmserver.recall.search.model import (
    NEIGHBOUR_SHARE,
    SECONDARY_SHARE,
    Baseline,
    HitOrder,
    MatchType,
    Ranking,
    ScopeStatistics,
    Spread,
)

_AVERAGE_ODDS = 9.0
"""A document as good as the average has one in ten of the score, one that is eight deviations better a half."""
_SAME = 0.9
"""Two texts that share this part of their words say the same."""
_WORD = re.compile(r"\w+")


class Candidate(msgspec.Struct, kw_only=True):
    """A document that may become a hit. `cosine` is None where it is not embedded; `neighbours` is the BM25 of those beside it."""

    id: UUID
    bm25: float
    neighbours: float = 0.0
    neighbour_count: int = 0
    cosine: float | None = None
    is_near: bool = False
    """Whether it is among the nearest in meaning."""
    is_turn: bool = False
    is_secondary: bool = False
    created_at: datetime | None = None
    tier: int = 0
    """Which of the ever wider tiers found it, see search.py."""
    deviations: float = 0.0
    """How far it stands out, in standard deviations of words and meaning."""
    parts: dict[str, float] = {}

    @property
    def match_type(self) -> MatchType:
        if self.is_near:
            return "both" if self.bm25 > 0 else "semantic"
        return "lexical"

    def is_hit(self, statistics: ScopeStatistics) -> bool:
        """Whether it or a neighbour has a word of the query, or it is nearer in meaning than anything is."""
        return self.bm25 + self.neighbours > 0 or (self.cosine or 0.0) > self.baseline(statistics).background

    def baseline(self, statistics: ScopeStatistics) -> Baseline:
        return statistics.turns if self.is_turn else statistics.observations

    @property
    def score(self) -> float:
        return score_of(self.deviations)

    def rank(self, order: HitOrder) -> float:
        """What hits are in order of, the greatest first: how far they stand out, or their time in seconds since 1970."""
        if order == "recent":
            return self.created_at.timestamp() if self.created_at else 0.0
        return self.deviations


def score_of(deviations: float) -> float:
    """The score, 0 to 1, of a document that stands out by so many standard deviations: it grows with them."""
    odds = 1 + deviations if deviations > 0 else 1 / (1 - deviations)
    return odds / (odds + _AVERAGE_ODDS)


def score_candidate(candidate: Candidate, statistics: ScopeStatistics, ranking: Ranking) -> None:
    """Set how far the candidate stands out, and the parts of it. What has no vector is as near as the average."""
    share = NEIGHBOUR_SHARE if ranking.neighbours and not candidate.is_turn else 0.0
    baseline = candidate.baseline(statistics)
    # A document and the shares of its neighbours vary, as if independently, by so much; a missing neighbour is an average one.
    spread = Spread(mean=baseline.words.mean, deviation=baseline.words.deviation * sqrt(1 + 2 * share**2))
    lent = share * (candidate.neighbours - candidate.neighbour_count * spread.mean)
    words = spread.standardize(candidate.bm25 + lent)
    parts = {"words": words, "bm25": candidate.bm25, "neighbours": words - spread.standardize(candidate.bm25)}
    meaning = 0.0
    if candidate.cosine is not None:
        meaning = baseline.meaning.standardize(candidate.cosine)
        parts |= {"meaning": meaning, "cosine": candidate.cosine}
    deviations = 2 * ((1 - ranking.meaning_weight) * words + ranking.meaning_weight * meaning)
    if candidate.is_secondary:
        parts["factor"] = SECONDARY_SHARE
        deviations *= SECONDARY_SHARE if deviations > 0 else 1
    candidate.deviations, candidate.parts = deviations, parts | {"deviations": deviations}


def text_words(observation: Observation) -> frozenset[str]:
    """The words by which two observations are compared."""
    text = f"{observation.title or ''} {observation.narrative or observation.content}"
    return frozenset(_WORD.findall(text[:4_000].lower()))


def is_same_text(words: frozenset[str], other: frozenset[str]) -> bool:
    """Whether one says no more than the other."""
    return is_similar(words, other, _SAME)
