from __future__ import annotations

import pytest

from tests.bench.recall import scores
from tests.bench.recall.corpus import Question
from tests.table import try_rows


def make_question(name: str, *expects: list[str], kind: str = "why", project: str = "p") -> Question:
    return Question(id=name, half="development", kind=kind, text=name, expects=list(expects), project=project)


@try_rows(
    ("found", "share"),
    [
        (["a1"], 0.5),
        (["a2"], 0.5),
        (["a1", "a2"], 0.5),
        (["b1", "x", "a2"], 1),
        (["x", "y", "z", "w", "v", "a1"], 0),
        ([], 0),
    ],
    ids=["one of two", "the other of a group", "a group twice", "both", "too late", "nothing"],
)
def test_any_member_of_a_group_states_its_fact(found: list[str], share: float):
    assert scores.share_found(make_question("q", ["a1", "a2"], ["b1"]), found, 5) == share


@pytest.mark.parametrize(("found", "rank"), [(["x", "b1", "a1"], 2), (["a1"], 1), (["x"], 0), ([], 0)])
def test_the_rank_that_counts_is_that_of_the_first_expected_document(found: list[str], rank: int):
    assert scores.first_rank(make_question("q", ["a1"], ["b1"]), found) == rank


def test_a_difference_is_paired_by_question():
    good = [1.0, 0.0] * 40
    a_bit_worse = [value - 0.1 for value in good]

    paired = scores.resample([a - b for a, b in zip(good, a_bit_worse, strict=True)])
    alone = scores.resample(good)

    # that some questions are hard for both says nothing about which is better
    assert (round(paired.low, 6), round(paired.high, 6)) == (0.1, 0.1)
    assert alone.low < alone.mean - 0.05 < alone.mean + 0.05 < alone.high


def test_a_difference_that_may_be_luck_has_zero_in_its_interval_and_comes_out_the_same_every_time():
    differences = [1.0] * 11 + [-1.0] * 9 + [0.0] * 60

    first, again = scores.resample(differences), scores.resample(differences)

    assert first.low < 0 < first.high
    assert first.mean == pytest.approx(0.025)
    assert first == again
