"""Scores a document, 0 to 1, by shared words and nearness in meaning. Where the numbers come from: docs/reference/recall.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation
from cmserver.recall.index.selection import is_similar
from cmserver.recall.search.model import MatchType, Ranking, SessionNeighbours

_UNSEEN_FACTOR = 3.0
"""A word of the query that no document has weighs this many times its idf: the query is hardly about this project."""
_ENOUGH_DOCUMENTS = 250
"""From this many documents on a missing word counts fully; among few documents most words are missing."""
_MEANING_WITHOUT_WORDS = 0.5
"""The part of a hit's meaning that counts when no document has any word of the query."""
_UNEMBEDDED_FACTOR = 0.5
"""A document that is not embedded yet gets this part of the meaning that its words promise."""
_CERTAIN_MEANING = 0.45
"""A best hit with this nearness in meaning (0 to 1, above the background) is good enough whatever its words."""
_MIN_MEANING_WITHOUT_WORDS = 0.25
"""A best hit that shares no word with the query needs at least this nearness in meaning."""
_MIN_PART_OF_BEST = 0.15
"""Hits that score less than this part of the best are dropped."""
_FULL_QUERY_WORDS = 5
"""For a query of fewer words the minimum score is lower in proportion: one unknown word among two says little."""
_SUMMARY_FACTOR = 0.4
"""Factor of a summary's score: it repeats vaguely what the observations of its session say."""
_PROMPT_FACTOR = 0.4
"""Factor of a prompt's score: it says what was wanted, not what came of it."""
_BEFORE, _AFTER = 0.25, 0.1
"""The part of the score of the observation just before it, and just after it, that a document gains."""
_HALF_DAYS = 90.0
"""The part of the score that depends on age halves in this many days."""
_SAME = 0.9
"""Two texts that share this part of their words say the same."""
_WORD = re.compile(r"\w+")


class Candidate(msgspec.Struct, kw_only=True):
    """A document that may become a hit. `cosine` is None where it is not embedded."""

    id: UUID
    bm25: float = 0.0
    cosine: float | None = None
    is_near: bool = False
    """Whether it is among the nearest in meaning."""
    is_prompt: bool = False
    tier: int = 0
    """Which of the ever wider tiers found it, see search.py."""
    score: float = 0.0
    parts: dict[str, float] = {}

    @property
    def match_type(self) -> MatchType:
        if self.bm25 <= 0:
            return "semantic"
        return "both" if self.is_near else "lexical"


class ScoreScale(msgspec.Struct, frozen=True, kw_only=True):
    """What the scores of one query are relative to.

    `max_bm25` is the BM25 of a document that has each word of the query once, or more; `known_share` how much of the query is known
    here; `background` how near anything is to the query. Without `has_meaning` nothing was embedded, and only words count.
    """

    max_bm25: float
    known_share: float
    background: float
    has_meaning: bool
    ranking: Ranking


def unseen_weight(documents: float) -> float:
    """The factor of the idf of a word that none of so many documents has."""
    return 1 + (_UNSEEN_FACTOR - 1) * _evidence(documents)


def known_share(unseen: int, words: int, documents: float) -> float:
    """The share of the query's words that are known here, 0 to 1; among few documents a missing word counts for less."""
    return 1 - unseen / words * _evidence(documents)


def _evidence(documents: float) -> float:
    return min(documents / _ENOUGH_DOCUMENTS, 1.0)


def score_candidate(candidate: Candidate, scale: ScoreScale) -> None:
    """Set the candidate's score, and the parts of it. One that is not embedded yet is scored by its words."""
    words = candidate.bm25 / scale.max_bm25 if scale.max_bm25 > 0 else 0.0
    parts = {"words": words, "known": scale.known_share}
    score = words * scale.known_share
    weight = scale.ranking.meaning_weight
    if scale.has_meaning and candidate.cosine is None:
        parts["waits"] = 1 - weight * _UNEMBEDDED_FACTOR
        score *= parts["waits"]
    if scale.has_meaning and candidate.cosine is not None:
        background = scale.background
        parts["cosine"] = candidate.cosine
        parts["meaning"] = max(0.0, (candidate.cosine - background) / (1 - background)) if background < 1 else 0.0
        meaning = parts["meaning"] * (_MEANING_WITHOUT_WORDS + (1 - _MEANING_WITHOUT_WORDS) * scale.known_share)
        score = (1 - weight) * score + weight * meaning
    if candidate.is_prompt:
        parts["kind"] = _PROMPT_FACTOR
        score *= _PROMPT_FACTOR
    candidate.score, candidate.parts = score, parts


def is_good_enough(best: Candidate, words: int, ranking: Ranking) -> bool:
    """Whether the best hit fits a query of so many words well enough for anything to be found."""
    if ranking.min_score <= 0:
        return True
    if best.bm25 <= 0 and best.parts.get("meaning", 0) < _MIN_MEANING_WITHOUT_WORDS:
        return False
    return best.score >= ranking.min_score * min(words / _FULL_QUERY_WORDS, 1.0) or best.parts.get("meaning", 0) >= _CERTAIN_MEANING


def min_score_beside(best: Candidate, documents: float, ranking: Ranking) -> float:
    """The minimum score of further hits, relative to the best one; lower among few documents, which are soon looked through."""
    return best.score * _MIN_PART_OF_BEST * _evidence(documents) if ranking.min_score > 0 else 0.0


def adjust_scores(
    candidates: Mapping[UUID, Candidate], briefs: Sequence[SessionNeighbours], now: datetime, ranking: Ranking
) -> None:
    """Adjust the scores of the candidates of these briefs: by kind, by the neighbours in the session, and by age."""
    for brief in briefs:
        if brief.kind == "summary":
            candidates[brief.id].parts["kind"] = _SUMMARY_FACTOR
            candidates[brief.id].score *= _SUMMARY_FACTOR
    neighbour_ids = [id_ for brief in briefs for id_ in (brief.before, brief.after) if id_ and id_ in candidates]
    unadjusted = {id_: candidates[id_].score for id_ in neighbour_ids}
    for brief in briefs:
        candidate = candidates[brief.id]
        if ranking.neighbours:
            before = unadjusted.get(brief.before, 0.0) if brief.before else 0.0
            after = unadjusted.get(brief.after, 0.0) if brief.after else 0.0
            candidate.parts["neighbours"] = _BEFORE * before + _AFTER * after
            candidate.score = min(candidate.score + candidate.parts["neighbours"], 1.0)
        if ranking.recency:
            age_days = max((now - brief.created_at).total_seconds(), 0) / 86_400
            candidate.parts["recency"] = 1 - ranking.recency * (1 - 0.5 ** (age_days / _HALF_DAYS))
            candidate.score *= candidate.parts["recency"]


def text_words(observation: Observation) -> frozenset[str]:
    """The words by which two observations are compared."""
    text = f"{observation.title or ''} {observation.narrative or observation.content}"
    return frozenset(_WORD.findall(text[:4_000].lower()))


def is_same_text(words: frozenset[str], other: frozenset[str]) -> bool:
    """Whether one says no more than the other."""
    return is_similar(words, other, _SAME)
