"""What a ranking is worth: recall, rank of the first document that was expected, and how sure a difference is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec
import numpy as np

from tests.bench.measure import percentile
from tests.bench.recall.corpus import Question

RESAMPLES = 10_000
_SEED = 20_260_401
_RESAMPLES_AT_ONCE = 1_000


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an arm made of a question: keys of documents, the best first (an empty one for what is no document of the corpus)."""

    ranked: list[str]
    milliseconds: float
    confidence: float | None = None


Answers = dict[str, Answer]
"""By the id of the question."""


def share_found(question: Question, ranked: Sequence[str], depth: int) -> float:
    """Recall: the share of the facts that are needed of which a document is among the first `depth`."""
    top = set(ranked[:depth])
    return fmean(not top.isdisjoint(group) for group in question.expects)


def first_rank(question: Question, ranked: Sequence[str]) -> int:
    """Of the first document that was expected, from 1; 0 when none is there."""
    wanted = {key for group in question.expects for key in group}
    return next((place for place, key in enumerate(ranked, 1) if key in wanted), 0)


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A mean, and where 95 of 100 resamples of the questions have it."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def resample(values: Sequence[float]) -> Interval:
    """The bootstrap interval of the mean of the values, one for each question; differences make it paired."""
    if not values:
        return Interval(mean=0, low=0, high=0)
    column = np.asarray(values, dtype=np.float64)
    random = np.random.default_rng(_SEED)
    means: list[float] = []
    for _ in range(RESAMPLES // _RESAMPLES_AT_ONCE):
        drawn = random.integers(0, len(column), size=(_RESAMPLES_AT_ONCE, len(column)))
        means += column[drawn].mean(axis=1).tolist()
    return Interval(mean=fmean(values), low=percentile(means, 2.5), high=percentile(means, 97.5))
