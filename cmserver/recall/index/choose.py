"""What gets a line: the most useful first, as long as there is room, and nothing twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from datetime import date

import msgspec

from cmserver.recall.index.layout import day_line, day_of, file_line
from cmserver.recall.index.model import Choice, Judged, LeftOut, Line

_WORD = re.compile(r"\w+")
_NEAR = 0.8
"""How much of the words of two titles are the same when one says no more than the other."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be chosen; `chars` are those of the lines with the headings above them."""

    chars: int
    observations: int
    summaries: int


class Chooser:
    """Chooses in several rounds into the same room."""

    def __init__(self, limits: Limits, *, shown: Collection[int] = ()) -> None:
        self._limits = limits
        self._shown = shown
        self._left = limits.chars
        self._seen: set[int] = set()
        self._counts = {True: 0, False: 0}
        self._days: set[date] = set()
        self._files: set[tuple[date, str]] = set()
        self._words: list[frozenset[str]] = []
        self._lines: list[Line] = []
        self._left_out: dict[int, LeftOut] = {}

    def offer(
        self, candidates: Iterable[Judged], words: Callable[[Judged], str], *, chars: int | None = None, is_full: bool = False
    ) -> None:
        """Take of them what is most useful, in at most `chars` of the room. What a former round has taken stays as it is."""
        keep = 0 if chars is None else max(self._left - chars, 0)
        for one in sorted(candidates, key=lambda each: (each.usefulness, each.row.created_at, each.row.number), reverse=True):
            if one.row.number not in self._seen:
                self._consider(one, words, keep=keep, is_full=is_full)

    def choice(self) -> Choice:
        left_out = sorted(self._left_out.values(), key=lambda one: (one.judged.usefulness, one.judged.row.number), reverse=True)
        return Choice(lines=self._lines, left_out=left_out)

    def _consider(self, one: Judged, words: Callable[[Judged], str], *, keep: int, is_full: bool) -> None:
        number, is_summary = one.row.number, one.row.kind == "summary"
        most = self._limits.summaries if is_summary else self._limits.observations
        if number in self._shown:
            self._left_out[number] = LeftOut(judged=one, why="shown")
            return
        if self._counts[is_summary] >= most:
            self._left_out[number] = LeftOut(judged=one, why="limit")
            return
        said = _words(one.row.title)
        if any(_near(said, other) for other in self._words):
            self._left_out[number] = LeftOut(judged=one, why="duplicate")
            return
        text = words(one)
        day = day_of(one.row)
        cost = len(text) + 1
        cost += 0 if day in self._days else len(day_line(day, day)) + 2
        cost += 0 if one.file is None or (day, one.file) in self._files else len(file_line(one.file)) + 1
        if cost > self._left - keep:
            self._left_out[number] = LeftOut(judged=one, why="budget")
            return
        self._left -= cost
        self._seen.add(number)
        self._left_out.pop(number, None)
        self._counts[is_summary] += 1
        self._days.add(day)
        if one.file is not None:
            self._files.add((day, one.file))
        self._words.append(said)
        self._lines.append(Line(judged=one, text=text, is_full=is_full))


def _words(title: str) -> frozenset[str]:
    return frozenset(_WORD.findall(title[:640].lower()))


def _near(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two titles say the same. Words with digits in them (versions, numbers, names) have to be the same."""
    if one == other:
        return bool(one)
    if min(len(one), len(other)) < _NEAR * max(len(one), len(other)):
        return False
    apart = one ^ other
    return len(one & other) >= _NEAR * len(one | other) and not any(any(map(str.isdigit, word)) for word in apart)
