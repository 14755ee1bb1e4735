"""What a ranking is worth: recall, rank of the first document that was expected, and how sure a difference is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import msgspec

from tests.bench.measure import percentile
from tests.bench.recall.corpus import Question

DEPTHS = (5, 10, 20)
AIMED_DEPTH = 10
RESAMPLES = 10_000
_SEED = 20_260_401


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an arm made of a question: keys of documents, the best first (an empty one for what is no document of the corpus)."""

    ranked: list[str]
    milliseconds: float
    tokens: int | None = None
    """Of the answer as an agent reads it, where the arm has such a thing."""


Answers = dict[str, Answer]
"""By the id of the question."""


def share_found(question: Question, ranked: Sequence[str], depth: int) -> float:
    """How much of what is needed is among the first `depth`: the share of the groups that have a member there."""
    top = set(ranked[:depth])
    return fmean(not top.isdisjoint(group) for group in question.expects)


def any_found(question: Question, ranked: Sequence[str], depth: int) -> float:
    return float(share_found(question, ranked, depth) > 0)


def all_found(question: Question, ranked: Sequence[str], depth: int) -> float:
    return float(share_found(question, ranked, depth) == 1)


def reciprocal_rank(question: Question, ranked: Sequence[str]) -> float:
    """Of the first document that was expected; 0 when none is there."""
    wanted = {key for group in question.expects for key in group}
    return next((1 / place for place, key in enumerate(ranked, 1) if key in wanted), 0.0)


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A mean, and where 95 of 100 resamples of the questions have it."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def intervals(columns: Sequence[Sequence[float]]) -> list[Interval]:
    """One for each column. All have a value for each question, and are resampled together; a column of differences is paired."""
    rows = list(zip(*columns, strict=True))
    if not rows:
        return [Interval(mean=0, low=0, high=0) for _ in columns]
    chance = random.Random(_SEED)
    draws = [[fmean(column) for column in zip(*chance.choices(rows, k=len(rows)), strict=True)] for _ in range(RESAMPLES)]
    return [
        Interval(mean=fmean(column), low=percentile(drawn, 2.5), high=percentile(drawn, 97.5))
        for column, drawn in zip(columns, zip(*draws, strict=True), strict=True)
    ]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What an arm comes to in one half. Recalls are by depth; `ours_above` is how much better search as it is does."""

    arm: str
    any: dict[int, float]
    strict: dict[int, float]
    fractional: dict[int, float]
    mrr: float
    p50_ms: float
    p99_ms: float
    tokens: float | None
    strict_by_kind: dict[str, float]
    mrr_by_kind: dict[str, float]
    ours_above_recall: Interval | None
    ours_above_mrr: Interval | None
    unanswerable_empty: float | None
    """The share of the unanswerable questions that were answered with nothing."""
    answerable_empty: float


def rows(questions: Sequence[Question], answers: dict[str, Answers], ours: str) -> list[Row]:
    """Of each arm in `answers`, beside the arm `ours`."""
    known = [one for one in questions if one.is_answerable]
    others = [arm for arm in answers if arm != ours and ours in answers]
    found = {arm: each(known, answers[arm], _recall_aimed) for arm in answers}
    ranks = {arm: each(known, answers[arm], reciprocal_rank) for arm in answers}
    differences = [_minus(of[ours], of[arm]) for arm in others for of in (found, ranks)]
    measured = intervals(differences) if differences else []
    above = {arm: measured[2 * place : 2 * place + 2] for place, arm in enumerate(others)}
    return [_row(arm, questions, answers[arm], above.get(arm)) for arm in answers]


def each(questions: Iterable[Question], answers: Answers, worth: Callable[[Question, Sequence[str]], float]) -> list[float]:
    return [worth(one, answers[one.id].ranked) for one in questions]


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return fmean(listed) if listed else 0.0


def lost(questions: Sequence[Question], with_minimum: Answers, without: Answers) -> float:
    """The share of the answerable questions that only the minimum score keeps from being answered."""
    known = [one for one in questions if one.is_answerable]
    before, after = (each(known, answers, _recall_aimed) for answers in (without, with_minimum))
    return mean(had > has for had, has in zip(before, after, strict=True))


def _row(arm: str, questions: Sequence[Question], answers: Answers, above: Sequence[Interval] | None) -> Row:
    known = [one for one in questions if one.is_answerable]
    unknown = [one for one in questions if not one.is_answerable]
    by_kind = {kind: [one for one in known if one.kind == kind] for kind in dict.fromkeys(one.kind for one in known)}
    taken = [answers[one.id].milliseconds for one in questions] or [0.0]
    tokens = [count for one in questions if (count := answers[one.id].tokens) is not None]
    return Row(
        arm=arm,
        any={depth: mean(any_found(one, answers[one.id].ranked, depth) for one in known) for depth in DEPTHS},
        strict={depth: mean(all_found(one, answers[one.id].ranked, depth) for one in known) for depth in DEPTHS},
        fractional={depth: mean(share_found(one, answers[one.id].ranked, depth) for one in known) for depth in DEPTHS},
        mrr=mean(each(known, answers, reciprocal_rank)),
        p50_ms=percentile(taken, 50),
        p99_ms=percentile(taken, 99),
        tokens=fmean(tokens) if tokens else None,
        strict_by_kind={kind: mean(each(of, answers, _recall_aimed)) for kind, of in by_kind.items()},
        mrr_by_kind={kind: mean(each(of, answers, reciprocal_rank)) for kind, of in by_kind.items()},
        ours_above_recall=above[0] if above else None,
        ours_above_mrr=above[1] if above else None,
        unanswerable_empty=mean(not answers[one.id].ranked for one in unknown) if unknown else None,
        answerable_empty=mean(not answers[one.id].ranked for one in known),
    )


def _recall_aimed(question: Question, ranked: Sequence[str]) -> float:
    return all_found(question, ranked, AIMED_DEPTH)


def _minus(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(one, other, strict=True)]
