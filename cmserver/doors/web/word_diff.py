"""Compares texts word by word, for pages that show both side by side."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Container, Sequence
from itertools import groupby
from uuid import UUID

import msgspec

from cmserver.base.fair_threads import FairThreads

_WORD = re.compile(r"(\w+|[^\w\s])")
PAIR_STEPS = 300_000
"""What comparing two texts by words may take, and by lines again: enough for 300 words of which none stayed."""
PAGE_STEPS = 1_200_000
"""What all texts of a page may take together: about half a second."""
_threads = FairThreads(2, "diff")


class Piece(msgspec.Struct, frozen=True):
    """A part of a text; `is_changed` where the other text does not have it."""

    text: str
    is_changed: bool


class WordDiff(msgspec.Struct, frozen=True):
    """Both texts in pieces."""

    left: list[Piece]
    right: list[Piece]

    @property
    def is_same(self) -> bool:
        return not any(piece.is_changed for piece in (*self.left, *self.right))


class Steps:
    """How much comparing may still take, in steps of the innermost loop."""

    def __init__(self, limit: int) -> None:
        self.left = limit


async def compare_all(team_id: UUID, pairs: Sequence[tuple[str, str]]) -> list[WordDiff]:
    """Where the texts of each pair differ, with at most PAGE_STEPS for all of them. In a thread; a team has one at a time."""
    if not pairs:
        return []

    def compare() -> list[WordDiff]:
        steps = Steps(PAGE_STEPS)
        return [compare_words(left, right, steps) for left, right in pairs]

    return await asyncio.wrap_future(_threads.submit(team_id, compare))


def compare_words(left: str, right: str, steps: Steps | None = None) -> WordDiff:
    """Where the texts differ. Pieces of each make up the whole text.

    By words; by lines where that takes more than PAIR_STEPS or what is left of `steps`; and where that does, too, all between
    the equal beginnings and ends of both is changed.
    """
    steps = steps or Steps(2 * PAIR_STEPS)
    texts = _WORD.split(left), _WORD.split(right)
    pairs = _find_kept(*texts, steps)
    if pairs is None:
        lines = _split_lines(left), _split_lines(right)
        pairs = _find_kept(*lines, steps)
        texts = texts if pairs is None else lines
    if pairs is None:
        pairs = _find_common_ends(texts[0][1::2], texts[1][1::2])
    return _mark(*texts, pairs)


def _split_lines(text: str) -> list[str]:
    """The lines as words are: with what is between them, which is nothing."""
    return ["", *(part for line in text.splitlines(keepends=True) for part in (line, ""))]


def _mark(left: Sequence[str], right: Sequence[str], pairs: Sequence[tuple[int, int]]) -> WordDiff:
    """Both texts in pieces, when these pairs of words stayed. What is beside a word that stayed did so if it is equal."""
    left_kept, right_kept = set[int](), set[int]()
    for x, y in [(-1, -1), *pairs, (len(left) // 2, len(right) // 2)]:
        for at in range(3):
            place, other = 2 * x + at, 2 * y + at
            if 0 <= place < len(left) and 0 <= other < len(right) and left[place] == right[other]:
                left_kept.add(place)
                right_kept.add(other)
    return WordDiff(_pieces(left, left_kept), _pieces(right, right_kept))


def _find_kept(left: Sequence[str], right: Sequence[str], steps: Steps) -> list[tuple[int, int]] | None:
    """The places among the words of both of those that stayed; None where finding them takes too many steps."""
    left, right = left[1::2], right[1::2]
    ends = _find_common_ends(left, right)
    start = next((count for count, pair in enumerate(ends) if pair != (count, count)), len(ends))
    end = len(ends) - start
    matches = _match(left[start : len(left) - end], right[start : len(right) - end], steps)
    return None if matches is None else [*ends, *((start + x, start + y) for x, y in matches)]


def _find_common_ends(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """The places of words that are equal at the beginning, and then at the end."""
    most = min(len(left), len(right))
    start = next((place for place in range(most) if left[place] != right[place]), most)
    end = next((place for place in range(most - start) if left[-1 - place] != right[-1 - place]), most - start)
    return [*((place, place) for place in range(start)), *((len(left) - 1 - place, len(right) - 1 - place) for place in range(end))]


def _match(left: Sequence[str], right: Sequence[str], steps: Steps) -> list[tuple[int, int]] | None:
    """Pairs of places with the same part, in order, so that the fewest parts are left over (Myers, 1986).

    None where that takes more than PAIR_STEPS, or than are left. It takes at most the product of the parts and the changes, and
    half the square of the changes in memory.
    """
    if not left or not right:
        return []
    limit, taken = min(PAIR_STEPS, steps.left), 0
    middle = len(left) + len(right) + 1
    reached = [0] * (2 * middle + 1)
    """How far into `left` the changes so far lead, by diagonal: the place in `left` less the place in `right`, plus `middle`."""
    rounds: list[list[int]] = []
    for changes in range(len(left) + len(right) + 1):
        taken += changes + 1
        if taken > limit:
            break
        rounds.append(reached[middle - changes - 1 : middle + changes + 2])
        for diagonal in range(-changes, changes + 1, 2):
            before, behind = reached[middle + diagonal - 1], reached[middle + diagonal + 1]
            x = start = behind if diagonal == -changes or (diagonal != changes and before < behind) else before + 1
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            taken += x - start
            reached[middle + diagonal] = x
            if x >= len(left) and y >= len(right):
                steps.left -= taken
                return _walk_back(rounds, len(left), len(right))
    steps.left -= taken
    return None


def _walk_back(rounds: Sequence[Sequence[int]], x: int, y: int) -> list[tuple[int, int]]:
    """The matches on the way to the ends of both, from what was reached before each change."""
    matches: list[tuple[int, int]] = []
    for changes in range(len(rounds) - 1, -1, -1):
        diagonal, row = x - y, rounds[changes]
        before, behind = row[diagonal + changes], row[diagonal + changes + 2]
        is_added = diagonal == -changes or (diagonal != changes and before < behind)
        from_x = behind if is_added else before
        from_y = from_x - (diagonal + 1 if is_added else diagonal - 1)
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            matches.append((x, y))
        x, y = from_x, from_y
    return matches


def _pieces(parts: Sequence[str], kept: Container[int]) -> list[Piece]:
    runs = groupby(((place not in kept, part) for place, part in enumerate(parts) if part), key=lambda pair: pair[0])
    return [Piece("".join(part for _, part in run), is_changed) for is_changed, run in runs]
