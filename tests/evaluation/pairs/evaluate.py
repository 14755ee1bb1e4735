"""Counts how well the duplicate test does on labelled pairs of observations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import mul

import msgspec

from cmserver.consolidation.marks import read_marks
from cmserver.consolidation.similarity import THRESHOLDS, USUAL, TextComparison, Thresholds, compare_texts, lexical_similarity
from cmserver.models.providers.embedding.model import Embedder
from tests.evaluation.pairs.load import Pair

SHOWN = {"same", "contradicts", "newer"}
"""The labels of pairs that a person should see: they are about the same fact."""


class JudgedPair(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled pair with its similarities and what becomes of it."""

    pair: Pair
    cosine: float | None
    lexical: float
    verdict: TextComparison


class PairFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the pairs of a half. None is of equal texts, so none is merged: shown are those that are suggested."""

    pairs: int
    about_one_fact: int
    shown: int
    shown_right: int
    contradictions: int
    contradictions_named: int
    """Of the pairs that contradict each other, how many are suggested for this reason."""

    @property
    def suggest_precision(self) -> float | None:
        return _share(self.shown_right, self.shown)

    @property
    def suggest_recall(self) -> float | None:
        return _share(self.shown_right, self.about_one_fact)


def judge_pairs(pairs: Sequence[Pair], embedder: Embedder | None) -> list[JudgedPair]:
    """The verdict for each pair; without an embedder by the words alone. Raises ProviderError."""
    cosines = [None] * len(pairs) if embedder is None else asyncio.run(_compute_cosines(pairs, embedder))
    thresholds = USUAL if embedder is None else THRESHOLDS.get((embedder.provider, embedder.model), USUAL)
    return [_judge(pair, cosine, thresholds) for pair, cosine in zip(pairs, cosines, strict=True)]


def count_figures(judged: Sequence[JudgedPair]) -> PairFigures:
    """The figures of judged pairs."""
    shown = [row for row in judged if row.verdict.decision != "none"]
    contradictions = [row for row in judged if row.pair.label == "contradicts"]
    return PairFigures(
        pairs=len(judged),
        about_one_fact=sum(row.pair.label in SHOWN for row in judged),
        shown=len(shown),
        shown_right=sum(row.pair.label in SHOWN for row in shown),
        contradictions=len(contradictions),
        contradictions_named=sum(row.verdict.reason == "contradicts" for row in contradictions),
    )


def _judge(pair: Pair, cosine: float | None, thresholds: Thresholds) -> JudgedPair:
    left, right = read_marks(pair.left.text), read_marks(pair.right.text)
    verdict = compare_texts(left, right, cosine, thresholds, is_equal=False)
    return JudgedPair(pair=pair, cosine=cosine, lexical=lexical_similarity(left, right), verdict=verdict)


async def _compute_cosines(pairs: Sequence[Pair], embedder: Embedder) -> list[float]:
    texts = [side.text for pair in pairs for side in (pair.left, pair.right)]
    vectors: list[list[float]] = []
    for start in range(0, len(texts), embedder.max_texts):
        vectors += await embedder.embed(texts[start : start + embedder.max_texts], "document")
    await embedder.close()
    return [sum(map(mul, left, right)) for left, right in zip(vectors[::2], vectors[1::2], strict=True)]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
