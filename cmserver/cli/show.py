"""How commands show things to people: aligned tables, local times, and nothing that could steer a terminal."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime

_GAP = "  "
_NARROWEST = 12
_CUT = "…"
Cell = str | int | None


def table(titles: Sequence[str], rows: Iterable[Sequence[Cell]], *, nothing: str, wide: Sequence[str] = ()) -> str:
    """The rows under their titles, or the sentence `nothing`. Columns of numbers are flush right. On a terminal the columns
    named by `wide` are cut so that a line fits; into a pipe everything goes whole.
    """
    lines = [list(row) for row in rows]
    if not lines:
        return nothing
    texts = [list(titles), *([_cell(cell) for cell in line] for line in lines)]
    widths = [max(_columns(text[at]) for text in texts) for at in range(len(titles))]
    _narrow(widths, [titles.index(title) for title in wide])
    right = [all(isinstance(line[at], int) or line[at] is None for line in lines) for at in range(len(titles))]
    return "\n".join(_line(text, widths, right) for text in texts)


def pairs(*named: tuple[str, Cell]) -> str:
    """One thing: a line for each of its properties."""
    width = max(len(name) for name, _ in named)
    return "\n".join(f"{name.ljust(width)}{_GAP}{_cell(value)}".rstrip() for name, value in named)


def moment(epoch_ms: int | None) -> str | None:
    """A time of the API as ISO text in the time zone of this machine, to the second."""
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms // 1000).astimezone().isoformat(timespec="seconds")


def plain(text: str) -> str:
    """In one line, and without what steers a terminal: names and messages are written by others."""
    return "".join(one if one.isprintable() else " " for one in text)


def _cell(value: Cell) -> str:
    return "-" if value is None or value == "" else plain(str(value))


def _columns(text: str) -> int:
    """How much of a terminal's line the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def _narrow(widths: list[int], wide: Sequence[int]) -> None:
    """Take from the wide columns, the last one first, what a line has too much for the terminal."""
    if not sys.stdout.isatty():
        return
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - shutil.get_terminal_size().columns
    for at in reversed(wide):
        taken = min(max(over, 0), max(widths[at] - _NARROWEST, 0))
        widths[at] -= taken
        over -= taken


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells: list[str] = []
    for text, width, is_right in zip(texts, widths, right, strict=True):
        shown = _cut(text, width)
        gap = " " * (width - _columns(shown))
        cells.append(gap + shown if is_right else shown + gap)
    return _GAP.join(cells).rstrip()


def _cut(text: str, width: int) -> str:
    if _columns(text) <= width:
        return text
    while _columns(text) > width - 1:
        text = text[:-1]
    return text + _CUT
