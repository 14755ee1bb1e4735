from __future__ import annotations

import pytest

from tests.bench.recall import scores
from tests.bench.recall.corpus import Question
from tests.bench.recall.scores import Answer, Answers, Row


def asked(name: str, *expects: list[str], kind: str = "why") -> Question:
    return Question(id=name, half="test", kind=kind, text=name, expects=list(expects))


def ranked(**of: list[str]) -> Answers:
    return {name: Answer(ranked=keys, milliseconds=float(place)) for place, (name, keys) in enumerate(of.items(), 1)}


def row(rows: list[Row], arm: str) -> Row:
    return next(one for one in rows if one.arm == arm)


@pytest.mark.parametrize(
    ("found", "any_", "all_", "share"),
    [
        (["a1"], 1, 0, 0.5),
        (["a2"], 1, 0, 0.5),
        (["a1", "a2"], 1, 0, 0.5),
        (["b1", "x", "a2"], 1, 1, 1),
        (["x", "y", "z", "w", "v", "a1"], 0, 0, 0),
        ([], 0, 0, 0),
    ],
    ids=["one of two", "the other of a group", "a group twice", "both", "too late", "nothing"],
)
def test_any_member_of_a_group_states_its_fact_and_strict_wants_all_groups(
    found: list[str], any_: float, all_: float, share: float
):
    question = asked("q", ["a1", "a2"], ["b1"])

    assert scores.any_found(question, found, 5) == any_
    assert scores.all_found(question, found, 5) == all_
    assert scores.share_found(question, found, 5) == share


@pytest.mark.parametrize(("found", "worth"), [(["x", "b1", "a1"], 1 / 2), (["a1"], 1), (["x"], 0), ([], 0)])
def test_the_rank_that_counts_is_that_of_the_first_expected_document(found: list[str], worth: float):
    assert scores.reciprocal_rank(asked("q", ["a1"], ["b1"]), found) == worth


def test_a_difference_is_paired_by_question():
    good = [1.0, 0.0] * 40
    a_bit_worse = [value - 0.1 for value in good]

    paired, of_one = scores.intervals([[a - b for a, b in zip(good, a_bit_worse, strict=True)], good])

    # that some questions are hard for both says nothing about which is better
    assert (round(paired.low, 6), round(paired.high, 6)) == (0.1, 0.1)
    assert paired.excludes_zero
    assert of_one.low < of_one.mean - 0.05 < of_one.mean + 0.05 < of_one.high


def test_a_difference_that_may_be_luck_has_zero_in_its_interval_and_comes_out_the_same_every_time():
    differences = [1.0] * 11 + [-1.0] * 9 + [0.0] * 60

    (first,), (again,) = scores.intervals([differences]), scores.intervals([differences])

    assert not first.excludes_zero
    assert first.mean == pytest.approx(0.025)
    assert first == again


def test_rows_leave_the_unanswerable_out_of_recall_and_count_what_they_were_answered_with():
    questions = [asked("q1", ["a"]), asked("q2", ["b"], kind="when"), asked("q3", kind="unanswerable"), asked("q4")]
    answers = {
        "ours": ranked(q1=["a"], q2=["x", "b"], q3=[], q4=["x"]),
        "other": ranked(q1=["a"], q2=[], q3=["x"], q4=["x"]),
    }

    rows = scores.rows(questions, answers, "ours")

    ours, other = row(rows, "ours"), row(rows, "other")
    assert (ours.strict[10], ours.mrr, ours.unanswerable_empty, ours.answerable_empty) == (1, 0.75, 0.5, 0)
    assert (other.strict[10], other.mrr, other.unanswerable_empty, other.answerable_empty) == (0.5, 0.5, 0, 0.5)
    assert ours.strict_by_kind == {"why": 1, "when": 1}
    assert (ours.p50_ms, ours.p99_ms, ours.tokens) == (2, 4, None)
    assert ours.ours_above_recall is None
    assert other.ours_above_recall is not None
    assert other.ours_above_recall.mean == 0.5
    assert other.ours_above_mrr is not None
    assert other.ours_above_mrr.mean == 0.25


def test_lost_is_what_only_the_minimum_score_keeps_from_being_answered():
    questions = [asked(f"q{place}", ["a"]) for place in range(4)] + [asked("none")]
    without = ranked(q0=["a"], q1=["a"], q2=["x"], q3=["x", "a"], none=["x"])
    within = ranked(q0=["a"], q1=[], q2=[], q3=["x", "a"], none=[])

    assert scores.lost(questions, within, without) == 0.25
