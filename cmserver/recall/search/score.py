"""One score, 0 to 1, from what words and meaning say of a document. Where the numbers come from: docs/reference/recall.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation
from cmserver.recall.search.model import Brief, MatchType, Ranking

_UNSEEN = 3.0
"""A word of the query that no document has weighs so many times what its rarity says: the query is hardly about this project."""
_TELLING = 250
"""In so many documents a word that is not there says this much; in few documents most words are not there."""
_BY_MEANING = 0.5
"""What is left of a meaning's share where no document has any word of the query."""
_NOT_YET = 0.5
"""What is not embedded yet has half of the meaning that its words promise."""
_SURELY = 0.45
"""What is so much nearer to the query than anything else fits it, whatever the words."""
_ALONE = 0.25
"""What shares no word with the query has to be at least so much nearer."""
_TAIL = 0.15
"""What scores less than such a part of the best is not worth a line."""
_SENTENCE = 5
"""A query of fewer words has to fit less well: one strange word among two says little."""
_SUMMARY = 0.7
"""A summary says vaguely what the observations of its session say."""
_BEFORE, _AFTER = 0.25, 0.1
"""How much a document gains from the score of the one that was observed just before it, and of the one just after."""
_HALF_DAYS = 90.0
_SAME = 0.9
_WORD = re.compile(r"\w+")


class Candidate(msgspec.Struct, kw_only=True):
    """A document on its way to being a hit. `words` is BM25, `cosine` None where it is not embedded."""

    id: UUID
    words: float = 0.0
    cosine: float | None = None
    is_near: bool = False
    """Whether it is among the nearest in meaning."""
    is_prompt: bool = False
    tier: int = 0
    """Which of the ever wider looks has found it, see search.py."""
    score: float = 0.0
    parts: dict[str, float] = {}

    @property
    def match_type(self) -> MatchType:
        if self.words <= 0:
            return "semantic"
        return "both" if self.is_near else "lexical"


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What scores of one query are measured by.

    `most` is the BM25 of a document that has each word of the query once, or more; `known` how much of the query is known here.
    `background` is how near anything is to the query. Without `meaning` nothing was embedded, and words are all there is.
    """

    most: float
    known: float
    background: float
    has_meaning: bool
    ranking: Ranking


def unseen_weight(documents: float) -> float:
    """How many times what its rarity says a word weighs that none of so many documents has."""
    return 1 + (_UNSEEN - 1) * _telling(documents)


def known_share(unseen: int, words: int, documents: float) -> float:
    """The share of the query's words that are known here, 0 to 1; among few documents a word that is not there counts for less."""
    return 1 - unseen / words * _telling(documents)


def _telling(documents: float) -> float:
    return min(documents / _TELLING, 1.0)


def score(one: Candidate, by: Measure) -> None:
    """Writes its score, and the parts of it. What is not embedded yet is judged by its words."""
    words = one.words / by.most if by.most > 0 else 0.0
    parts = {"words": words, "known": by.known}
    one.score = words * by.known
    if by.has_meaning and one.cosine is None:
        parts["waits"] = 1 - by.ranking.meaning_weight * _NOT_YET
        one.score *= parts["waits"]
    if by.has_meaning and one.cosine is not None:
        parts["cosine"] = one.cosine
        parts["meaning"] = max(0.0, (one.cosine - by.background) / (1 - by.background)) if by.background < 1 else 0.0
        meaning = parts["meaning"] * (_BY_MEANING + (1 - _BY_MEANING) * by.known)
        one.score = (1 - by.ranking.meaning_weight) * one.score + by.ranking.meaning_weight * meaning
    one.parts = parts


def fits(best: Candidate, words: int, ranking: Ranking) -> bool:
    """Whether the best that was found fits a query of so many words well enough for anything to be found."""
    if best.words <= 0 and best.parts.get("meaning", 0) < _ALONE:
        return False
    return best.score >= ranking.min_score * min(words / _SENTENCE, 1.0) or best.parts.get("meaning", 0) >= _SURELY


def least_beside(best: Candidate, documents: float, ranking: Ranking) -> float:
    """What a hit has to score beside the best of so many documents: few are soon looked through."""
    return best.score * _TAIL * _telling(documents) if ranking.min_score > 0 else 0.0


def place(candidates: Mapping[UUID, Candidate], briefs: Sequence[Brief], now: datetime, ranking: Ranking) -> None:
    """Weighs those that the briefs are of by what each is, by its neighbours in its session, and by its age."""
    for brief in briefs:
        if brief.kind == "summary":
            one = candidates[brief.id]
            one.parts["kind"] = _SUMMARY
            one.score *= _SUMMARY
    beside = [each for brief in briefs for each in (brief.before, brief.after) if each and each in candidates]
    alone = {each: candidates[each].score for each in beside}
    for brief in briefs:
        one = candidates[brief.id]
        if ranking.neighbours:
            before = alone.get(brief.before, 0.0) if brief.before else 0.0
            after = alone.get(brief.after, 0.0) if brief.after else 0.0
            one.parts["neighbours"] = _BEFORE * before + _AFTER * after
            one.score = min(one.score + one.parts["neighbours"], 1.0)
        if ranking.recency:
            age_days = max((now - brief.created_at).total_seconds(), 0) / 86_400
            one.parts["recency"] = 1 - ranking.recency * (1 - 0.5 ** (age_days / _HALF_DAYS))
            one.score *= one.parts["recency"]


def says(one: Observation) -> frozenset[str]:
    """The words by which two observations are compared."""
    return frozenset(_WORD.findall(f"{one.title or ''} {one.narrative or one.content}"[:4_000].lower()))


def same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether one says no more than the other. Numbers and names with digits in them have to be the same: they are what changes."""
    if not one or min(len(one), len(other)) < _SAME * max(len(one), len(other)):
        return False
    apart = one ^ other
    return len(one & other) >= _SAME * len(one | other) and not any(any(map(str.isdigit, word)) for word in apart)
