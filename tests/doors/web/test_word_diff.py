"""Comparing two texts word by word: what is marked, and how much work that may take."""

from __future__ import annotations

import random
from uuid import uuid4

from cmserver.doors.web.word_diff import PAGE_STEPS, PAIR_STEPS, Piece, Steps, WordDiff, compare_all, compare_words
from tests.table import try_rows


def marked(pieces: list[Piece]) -> str:
    return "".join(f"[{piece.text}]" if piece.is_changed else piece.text for piece in pieces)


def is_whole(diff: WordDiff, left: str, right: str) -> bool:
    return "".join(piece.text for piece in diff.left) == left and "".join(piece.text for piece in diff.right) == right


def alternating(words: int, every: int) -> str:
    """What is slow for an algorithm that looks for the longest match again and again."""
    return " ".join("a" if place % every else "b" for place in range(words))


@try_rows(
    "left, right, left_marked, right_marked",
    [
        ("", "", "", ""),
        ("same words", "same words", "same words", "same words"),
        ("", "new", "", "[new]"),
        ("old", "", "[old]", ""),
        ("retry three times", "retry five times", "retry [three] times", "retry [five] times"),
        ("retry three times", "give up after three", "[retry] three[ times]", "[give up after] three"),
        ("one two three", "x y three", "[one two] three", "[x y] three"),
        ("a\nb\nc", "a\nc", "a\n[b]\nc", "a\nc"),
        ("Größe: 3", "Größe: 4", "Größe: [3]", "Größe: [4]"),
    ],
)
def test_what_differs_is_marked_word_by_word(left: str, right: str, left_marked: str, right_marked: str):
    diff = compare_words(left, right)

    assert (marked(diff.left), marked(diff.right)) == (left_marked, right_marked)


def test_as_many_words_as_possible_stay():
    """Beside the length of the longest common subsequence, by the plainest algorithm."""
    chosen = random.Random(1)
    for _ in range(300):
        left, right = ("".join(chosen.choice("ab.") for _ in range(chosen.randrange(20))) for _ in range(2))
        left, right = ".".join(left), ".".join(right)
        diff = compare_words(left, right)
        lengths = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
        for x, one in enumerate(left):
            for y, other in enumerate(right):
                lengths[x + 1][y + 1] = lengths[x][y] + 1 if one == other else max(lengths[x][y + 1], lengths[x + 1][y])
        kept = "".join(piece.text for piece in diff.left if not piece.is_changed)
        assert is_whole(diff, left, right)
        assert kept == "".join(piece.text for piece in diff.right if not piece.is_changed)
        assert len(kept) == lengths[-1][-1]


@try_rows("words", [200, 400, 750, 1_400, 20_000])
def test_comparing_takes_a_bounded_number_of_steps(words: int):
    left, right, steps = alternating(words, 2), alternating(words, 3), Steps(PAGE_STEPS)

    diff = compare_words(left, right, steps)

    assert is_whole(diff, left, right)
    assert not diff.is_same
    assert PAGE_STEPS - steps.left <= 2 * (PAIR_STEPS + len(left))


def test_a_long_text_with_one_change_is_still_compared_by_words():
    words = [f"word{place}" for place in range(20_000)]
    left, right = " ".join(words), " ".join([*words[:9_000], "other", *words[9_001:]])

    assert [piece.text for piece in compare_words(left, right).right if piece.is_changed] == ["other"]


def test_what_is_too_much_by_words_is_compared_by_lines():
    left, right = (f"same\n{alternating(3_000, every)}\nalike too\n{alternating(2_000, every)}\nend" for every in (2, 3))

    diff = compare_words(left, right)

    assert [piece.text for piece in diff.left if not piece.is_changed][1:-1] == ["alike too\n"]
    assert is_whole(diff, left, right)


async def test_the_texts_of_a_page_share_their_steps():
    """The last ones are not looked into any more, and are shown whole nevertheless."""
    texts = (alternating(3_000, 2), alternating(3_000, 3))

    diffs = await compare_all(uuid4(), [("first word", "first words"), *[texts] * 20])

    assert marked(diffs[0].right) == "first [words]"
    assert all(is_whole(diff, *texts) for diff in diffs[1:])
