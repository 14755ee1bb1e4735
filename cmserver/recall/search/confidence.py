"""How likely a query is about what is searched at all. A search says it; what nobody asked for is shown only above a threshold.

It does not say whether the answer is there: a question about something that never was has all its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import msgspec

from cmserver.embeddings.calibration.model import CALIBRATED_EMBEDDER
from cmserver.embeddings.model import Calibration, QueryVector

LEAST_DOCUMENTS = 24
"""In a smaller memory nothing is said: it was fitted where there are hundreds, and the smallest that it was tried on has so many
(`scripts` of docs/reference/recall.md). Among few documents a word that one of them has weighs less than a word that none has.
"""
_FULL_WORDS = 12


class ConfidenceCoefficients(msgspec.Struct, frozen=True, kw_only=True):
    """A logistic regression; cosines differ by embedding model, and so do these."""

    intercept: float
    words: float
    cosine: float
    length: float
    """By the number of words, as a share of 12."""


LOCAL = ConfidenceCoefficients(intercept=-9.8, words=5.1, cosine=12.1, length=5.0)
"""Of the local embedder: fitted by what told questions and prompts about their own project from those about another one."""

LOCAL_CALIBRATION = Calibration(intercept=-7.3, slope=22.0)
"""What the calibration of the local embedder comes to, on the average of two histories of coding."""


def find_coefficients(vector: QueryVector) -> ConfidenceCoefficients | None:
    """Those of the vector's model; None where nothing is known of it.

    Of a model whose cosines were measured as the local ones were, a cosine counts as the local one with the same log-odds. Words
    and length weigh the same whatever embeds.
    """
    calibration = vector.calibration
    if calibration is None:
        return LOCAL if vector.provider == CALIBRATED_EMBEDDER else None
    factor = LOCAL.cosine / LOCAL_CALIBRATION.slope
    return ConfidenceCoefficients(
        intercept=LOCAL.intercept + factor * (calibration.intercept - LOCAL_CALIBRATION.intercept),
        words=LOCAL.words,
        cosine=factor * calibration.slope,
        length=LOCAL.length,
    )


def to_local_cosine(vector: QueryVector, cosine: float) -> float:
    """The cosine of the local embedder that says as much as this one of the vector's model does."""
    if vector.calibration is None:
        return cosine
    log_odds = vector.calibration.intercept + vector.calibration.slope * cosine
    return (log_odds - LOCAL_CALIBRATION.intercept) / LOCAL_CALIBRATION.slope


def share_of_words(best_bm25: float, idfs: Sequence[float]) -> float:
    """The best BM25 as a share of what the words of the query weigh together."""
    weight = sum(idfs)
    return min(best_bm25 / weight, 1.0) if weight > 0 else 0.0


def estimate_confidence(coefficients: ConfidenceCoefficients, *, words: float, cosine: float, word_count: int) -> float:
    """The probability, 0 to 1, that the query is about the scope.

    `words` is the best BM25 as a share of what all of the query's words weigh, 0 to 1; `cosine` that of the nearest document.
    """
    length = min(word_count, _FULL_WORDS) / _FULL_WORDS
    log_odds = coefficients.words * words + coefficients.cosine * cosine + coefficients.length * length
    return 1 / (1 + exp(-(coefficients.intercept + log_odds)))
