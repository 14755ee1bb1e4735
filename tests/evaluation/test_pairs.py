"""The labelled pairs are as many as their README says, and no text of one pair comes again in another."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.evaluation.pairs.load import HALVES, Half, Pair, PairSide, read_pairs

PAIRS = [pair for half in HALVES for pair in read_pairs(half)]


def collect_texts(side: PairSide) -> set[str]:
    return {text for text in (side.title, side.narrative, *side.facts) if text}


def find_repeats(pairs: list[Pair]) -> list[str]:
    """The texts that stand in more than one of the pairs."""
    counts = Counter(text for pair in pairs for text in collect_texts(pair.left) | collect_texts(pair.right))
    return [text for text, count in counts.items() if count > 1]


@pytest.mark.parametrize("half", HALVES)
def test_each_label_has_its_number_of_pairs(half: Half) -> None:
    counts = Counter(pair.label for pair in read_pairs(half))

    assert counts == {"same": 90, "contradicts": 60, "newer": 30, "related": 30, "unrelated": 30}


def test_no_text_comes_again_in_another_pair_of_either_half() -> None:
    assert find_repeats(PAIRS) == []


def test_a_repeated_text_is_found() -> None:
    assert PAIRS[0].left.title in find_repeats([*PAIRS, PAIRS[0]])


def test_the_sides_of_a_pair_differ() -> None:
    assert [pair.left.title for pair in PAIRS if pair.left.text == pair.right.text] == []


def test_titles_are_short() -> None:
    assert [title for pair in PAIRS for title in (pair.left.title, pair.right.title) if len(title) > 80] == []
