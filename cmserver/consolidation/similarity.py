"""Judges whether two observations say the same: how near they are, and whether they differ in a fact."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from cmserver.access.model import RetentionPolicy
from cmserver.consolidation.difference import Difference
from cmserver.consolidation.marks import TextMarks
from cmserver.consolidation.model import SuggestionReason

Decision = Literal["merge", "suggest", "none"]

_SHORT_WORDS = 8
"""A text with fewer different words has too few trigrams to compare."""

_SAME_WORDING = 0.25
"""From this lexical similarity on, two texts that differ in a fact contradict each other; below, they may be worded apart."""


WORDS_SUGGEST = 0.3
"""From this lexical similarity on a pair is suggested, with every embedder and without one."""


class Thresholds(msgspec.Struct, frozen=True):
    """From which similarity on (0 to 1) a pair is suggested, and one that differs in a fact is still called the same."""

    suggest: float
    near: float
    words: float = WORDS_SUGGEST
    """For the lexical similarity."""
    reads_all_scripts: bool = True
    """Whether the embedder knows scripts without spaces; for one that does not, their texts are all alike."""


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a pair; a suggestion has its reason."""

    decision: Decision
    reason: SuggestionReason | None = None
    difference: Difference | None = None


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
    return msgspec.structs.replace(measured, suggest=suggest, near=max(suggest, measured.near), words=suggest)


def lexical_similarity(left: TextMarks, right: TextMarks) -> float:
    """The share of common word trigrams, 0 to 1 (Dice); of common words, where one text has few."""
    if min(len(left.words), len(right.words)) < _SHORT_WORDS:
        return _dice(left.words, right.words)
    return _dice(left.trigrams, right.trigrams)


def readable_cosine(cosine: float | None, left: TextMarks, right: TextMarks, thresholds: Thresholds) -> float | None:
    """The cosine; None where one of the texts is mostly in a script that the embedder does not know."""
    is_readable = thresholds.reads_all_scripts or not (left.is_unsegmented or right.is_unsegmented)
    return cosine if is_readable else None


def judge_pair(
    cosine: float | None, lexical: float, difference: Difference | None, thresholds: Thresholds, *, is_equal: bool
) -> Verdict:
    """What becomes of two observations: equal texts merge, by their hashes; others are suggested, or left.

    `thresholds` has one for the cosine and one for the lexical similarity, and one is enough. Without a cosine the words alone
    decide.
    """
    if is_equal:
        return Verdict("merge")
    cosine = 0.0 if cosine is None else cosine
    if cosine < thresholds.suggest and lexical < thresholds.words:
        return Verdict("none", None, difference)
    if difference is not None and lexical >= _SAME_WORDING:
        return Verdict("suggest", "contradicts", difference)
    is_near = difference is None or cosine >= thresholds.near
    return Verdict("suggest", "same" if is_near else "related", difference)


def _dice(left: AbstractSet[object], right: AbstractSet[object]) -> float:
    total = len(left) + len(right)
    return 2 * len(left & right) / total if total else 0.0
