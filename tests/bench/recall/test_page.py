"""docs/reference/recall.md is what was measured, of the arms and kinds of questions that there are."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from tests.bench.recall import page
from tests.bench.recall.arms import AIMED, ARMS, OURS, UNBOUND
from tests.bench.recall.corpora import history
from tests.bench.recall.corpus import HALVES, Corpus, Document, Question, Session
from tests.bench.recall.report import OfHalf, Report, aims, describe, failures, of_half, saved, terminal
from tests.bench.recall.scores import Answer, Answers, Interval

CORPORA = ["history", "locomo", "beam"]


def test_the_page_is_made_of_what_was_measured():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(saved(CORPORA)), "bin/bench recall --half all --write"


def test_what_was_measured_has_the_arms_and_kinds_that_there_are_and_is_of_this_corpus():
    (report, *_) = saved(CORPORA)

    assert [half.half for half in report.halves] == list(HALVES)
    for half in report.halves:
        assert [row.arm for row in half.rows] == list(ARMS)
        assert set(half.kinds) == set(history.KINDS)
    assert report.described == describe(history.load())


def test_the_failures_on_the_page_name_questions_of_the_test_half():
    (report, *_) = saved(CORPORA)
    test = report.half("test")

    assert test is not None
    assert {one.question for one in test.failures} <= {one.id for one in history.load().of_half("test")}


def _asked() -> tuple[Corpus, dict[str, Answers]]:
    """Eighty questions that nothing else finds as well as search does, and twenty that nothing answers."""
    session = Session(name="s", project="p", agent="claude-code", started_at=datetime(2026, 3, 1, tzinfo=UTC))
    documents = [
        Document(key=f"d{place}", session="s", created_at=session.started_at, title=f"The {place}th | thing") for place in range(90)
    ]
    known = [Question(id=f"q{n}", half="test", kind="why", text=f"q{n}", expects=[[f"d{n}"]]) for n in range(80)]
    unknown = [Question(id=f"u{n}", half="test", kind="unanswerable", text=f"u{n}", expects=[]) for n in range(20)]

    def answered(first_wrong: int, empty: int) -> Answers:
        right = {one.id: [one.expects[0][0]] if n >= first_wrong else ["d89"] for n, one in enumerate(known)}
        wrong = {one.id: [] if n < empty else ["d89"] for n, one in enumerate(unknown)}
        return {name: Answer(ranked=found, milliseconds=2, tokens=100) for name, found in {**right, **wrong}.items()}

    answers = {OURS: answered(2, 16), UNBOUND: answered(0, 0), **{arm: answered(20, 0) for arm in AIMED}}
    return Corpus(name="history", sessions=[session], documents=documents, questions=[*known, *unknown]), answers


def _half(answers: dict[str, Answers] | None = None) -> OfHalf:
    corpus, usual = _asked()
    return of_half("test", corpus, corpus.questions, answers or usual)


def test_aims_are_judged_by_the_difference_and_by_how_sure_it_is():
    half = _half()

    assert [one.is_met for one in aims(half)] == [True] * 5
    assert half.lost == 0.025
    ours = half.row(OURS)
    assert ours is not None
    assert ours.unanswerable_empty == 0.8


@pytest.mark.parametrize(
    ("recall", "mrr", "is_met"),
    [
        (Interval(mean=0.05, low=0.01, high=0.09), Interval(mean=0.1, low=0.01, high=0.2), True),
        (Interval(mean=0.049, low=0.01, high=0.09), Interval(mean=0.1, low=0.01, high=0.2), False),
        (Interval(mean=0.05, low=0, high=0.1), Interval(mean=0.1, low=0.01, high=0.2), False),
        (Interval(mean=0.05, low=0.01, high=0.09), Interval(mean=0.1, low=-0.01, high=0.2), False),
    ],
    ids=["met", "too little", "recall by luck", "rank by luck"],
)
def test_better_is_by_enough_and_surely(recall: Interval, mrr: Interval, is_met: bool):
    half = _half()
    rows = [msgspec.structs.replace(row, ours_above_recall=recall, ours_above_mrr=mrr) for row in half.rows if row.arm in AIMED]

    judged = aims(msgspec.structs.replace(half, rows=rows, lost=None))

    assert [one.is_met for one in judged] == [is_met] * len(AIMED)


def test_the_page_and_the_terminal_name_failures_and_what_was_not_met():
    corpus, answers = _asked()
    answers[OURS] = answers["vectors"]
    half = _half(answers)
    report = Report(corpus="history", described=describe(corpus), command="it", measured_with={"embedder": "none"}, halves=[half])

    written, printed = page.text([report, msgspec.structs.replace(report, corpus="locomo")]), f"{terminal(half)}{failures(half)}"

    assert "| q3 | why | 0 of 1 | The 89th \\| thing |" in written
    assert "| u0 | unanswerable |  | The 89th \\| thing |" in written
    assert "| q21 |" not in written
    assert "**no**" in written
    assert written.count("## locomo") == 1
    assert "NOT  surely better than `vectors`" in printed
    assert "\nq3              why           0 of 1  The 89th | thing\n" in printed
