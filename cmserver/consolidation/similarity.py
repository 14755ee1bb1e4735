"""Judges whether two observations say the same: how near they are, and whether they differ in a fact."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.access.model import RetentionPolicy
from cmserver.consolidation.difference import DifferenceKind, find_difference
from cmserver.consolidation.marks import TextMarks
from cmserver.consolidation.model import NewSuggestion, SuggestionReason

Decision = Literal["merge", "suggest", "none"]

SHORT_WORDS = 10
"""A text with fewer different words is one rule: two that share a few may be about two things."""

_SAME_SUBJECT = 0.6
"""From this share of common words on, two texts that differ in a fact are about one subject, and contradict each other."""


class Thresholds(msgspec.Struct, frozen=True):
    """From which similarity on (0 to 1) a pair is suggested, and one that differs in a fact is still called the same."""

    suggest: float
    near: float
    words: float = 0.3
    """For the lexical similarity, with every embedder and without one."""
    short_words: float = 0.55
    """For that of short texts, whose cosine must be `near`."""
    reads_all_scripts: bool = True
    """Whether the embedder knows scripts without spaces; for one that does not, their texts are all alike."""


class TextComparison(msgspec.Struct, frozen=True, kw_only=True):
    """How alike two texts are, from 0 to 1, by which measure, and what becomes of the pair; a suggestion has its reason."""

    similarity: float
    measured_by: Literal["vector", "words"]
    decision: Decision
    reason: SuggestionReason | None
    difference: DifferenceKind | None

    def suggest(self, left_id: UUID, right_id: UUID) -> NewSuggestion:
        """The pair as it is suggested."""
        return NewSuggestion(
            left_id=left_id,
            right_id=right_id,
            similarity=self.similarity,
            measured_by=self.measured_by,
            reason=self.reason or "same",
        )


USUAL = Thresholds(suggest=0.75, near=0.835)
"""For the cosine of an embedder that was not measured."""

THRESHOLDS: dict[tuple[str, str], Thresholds] = {
    ("local", "l2-supercat-256"): Thresholds(suggest=0.5, near=0.69, reads_all_scripts=False),
    ("minilm", "all-MiniLM-L6-v2-int8"): Thresholds(suggest=0.55, near=0.715, reads_all_scripts=False),
    ("ollama", "nomic-embed-text"): USUAL,
    ("openai", "text-embedding-3-small"): USUAL,
    ("voyage", "voyage-4"): USUAL,
}
"""For the cosine, by the provider and model of an embedder."""


def find_thresholds(provider: str, model: str, policy: RetentionPolicy) -> Thresholds:
    """Those of the embedder's cosine, or the one that the team says, for both measures."""
    measured = THRESHOLDS.get((provider, model), USUAL)
    if policy.suggest_above is None:
        return measured
    suggest = policy.suggest_above
    return msgspec.structs.replace(measured, suggest=suggest, near=max(suggest, measured.near), words=suggest, short_words=suggest)


def change_other_files(left: Iterable[str] | None, right: Iterable[str] | None) -> bool:
    """Whether two lists of changed files, both known, have no file in common: what they say alike is of different places.

    A path may be written from a folder further in: `mail/client.py` is `src/mail/client.py`.
    """
    of_left, of_right = [f"/{path}" for path in left or ()], [f"/{path}" for path in right or ()]
    if not of_left or not of_right:
        return False
    return not any(path.endswith(other) or other.endswith(path) for path in of_left for other in of_right)


def lexical_similarity(left: TextMarks, right: TextMarks) -> float:
    """The share of common word trigrams, 0 to 1 (Dice); of common words, where one text is short and has too few trigrams."""
    return _share_of_words(left, right) if _is_short(left, right) else _dice(left.trigrams, right.trigrams)


def compare_texts(
    left: TextMarks, right: TextMarks, cosine: float | None, thresholds: Thresholds, *, is_equal: bool
) -> TextComparison:
    """How alike two observations are, and what becomes of them: equal texts merge, by their hashes; others are suggested, or left.

    `thresholds` has one for the cosine and one for the lexical similarity, and one is enough. Without a cosine, or where one text
    is mostly in a script that the embedder does not know, the words alone decide.
    """
    if not thresholds.reads_all_scripts and (left.is_unsegmented or right.is_unsegmented):
        cosine = None
    lexical, nearness, is_short = lexical_similarity(left, right), cosine or 0.0, _is_short(left, right)
    decision: Decision = "merge" if is_equal else "none"
    reason: SuggestionReason | None = None
    difference = None if is_equal else find_difference(left, right)
    if not is_equal and (
        nearness >= (thresholds.near if is_short else thresholds.suggest)
        or lexical >= (thresholds.short_words if is_short else thresholds.words)
    ):
        is_near = difference is None or nearness >= thresholds.near
        contradicts = difference is not None and _share_of_words(left, right) >= _SAME_SUBJECT
        decision, reason = "suggest", "contradicts" if contradicts else "same" if is_near else "related"
    by_vector = cosine is not None and nearness >= lexical
    return TextComparison(
        similarity=min(1.0, max(nearness, lexical)),
        measured_by="vector" if by_vector else "words",
        decision=decision,
        reason=reason,
        difference=difference,
    )


def _is_short(left: TextMarks, right: TextMarks) -> bool:
    return min(len(left.words), len(right.words)) < SHORT_WORDS


def _share_of_words(left: TextMarks, right: TextMarks) -> float:
    return _dice(left.words, right.words)


def _dice(left: AbstractSet[object], right: AbstractSet[object]) -> float:
    total = len(left) + len(right)
    return 2 * len(left & right) / total if total else 0.0
