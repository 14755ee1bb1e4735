"""How answers are shown to people on a terminal: aligned tables, local times, and no characters that control it."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Generic, TypeVar, cast
from uuid import UUID

import click
import msgspec

from cmserver.base.lookalikes import sanitize_line

_GAP = "  "
_MIN_WIDTH = 12
_ELLIPSIS = "…"
Cell = str | int | UUID | None
R = TypeVar("R", bound=msgspec.Struct)


def render_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    empty: str,
    shrink: Sequence[str] = (),
    next_cursor: str | None = None,
) -> str:
    """The rows under their titles, or the sentence `empty`. Number columns are aligned right.

    On a terminal the columns named by `shrink` are cut so that a line fits; in a pipe every cell is complete. With `next_cursor`
    there are more rows, and a hint on standard error says so.
    """
    if next_cursor is not None:
        click.echo("There are more: --limit shows them.", err=True)
    cells = [list(row) for row in rows]
    if not cells:
        return empty
    lines = [list(titles), *([_cell(cell) for cell in row] for row in cells)]
    widths = [max(_columns(line[at]) for line in lines) for at in range(len(titles))]
    _shrink(widths, [titles.index(title) for title in shrink])
    is_number = [all(isinstance(row[at], int) or row[at] is None for row in cells) for at in range(len(titles))]
    return "\n".join(_line(line, widths, is_number) for line in lines)


def render_fields(*fields: tuple[str, Cell]) -> str:
    """One line for each name and value."""
    width = max(len(name) for name, _ in fields)
    return "\n".join(f"{name.ljust(width)}{_GAP}{_cell(value)}".rstrip() for name, value in fields)


class Columns(Generic[R]):
    """The columns of a table, or the lines about one thing, by the fields of a wire Struct.

    `"who=actor_id"` shows the field `actor_id` under the title `who`; without `=` the title is the field's name. A time is named
    without `_epoch` or `_at_epoch`, and lists are shown with commas. What no field is, a function of that name in `computed` makes.
    """

    def __init__(self, row: type[R], columns: str, **computed: Callable[[R], Cell]) -> None:
        parts = [column.partition("=") for column in columns.split(", ")]
        self._cells = {title: computed.get(name or title) or _find_field(row, name or title) for title, _, name in parts}

    def table(self, rows: Iterable[R], next_cursor: str | None = None, *, empty: str, shrink: Sequence[str] = ()) -> str:
        """The rows as `render_table` shows them."""
        cells = [[cell(row) for cell in self._cells.values()] for row in rows]
        return render_table([*self._cells], cells, empty=empty, shrink=shrink, next_cursor=next_cursor)

    def page(self, name: str, empty: str, *, shrink: Sequence[str] = ()) -> Callable[[msgspec.Struct, object], str]:
        """Shows the rows that are the field `name` of an answer, as `table` does."""
        return lambda page, _: self.table(getattr(page, name), getattr(page, "next_cursor", None), empty=empty, shrink=shrink)

    def lines(self, name: str) -> Callable[[msgspec.Struct, object], str]:
        """Shows the thing that is the field `name` of an answer, one line for each column."""
        return lambda answer, _: render_fields(*self.fields(getattr(answer, name)))

    def fields(self, row: R) -> list[tuple[str, Cell]]:
        """The titles and values of one thing, for `render_fields`."""
        return [(title, cell(row)) for title, cell in self._cells.items()]


def _find_field(row: type[msgspec.Struct], name: str) -> Callable[[msgspec.Struct], Cell]:
    name = name.replace(" ", "_")
    for time_name in (f"{name}_at_epoch", f"{name}_epoch"):
        if time_name in row.__struct_fields__:
            return lambda struct: format_time(getattr(struct, time_name))
    if name not in row.__struct_fields__:
        raise TypeError(f"{row.__name__} has no field {name}")

    def read(struct: msgspec.Struct) -> Cell:
        value: object = getattr(struct, name)
        return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else cast("Cell", value)

    return read


def format_time(epoch_ms: int | None) -> str | None:
    """A time of the API as ISO 8601 in the local time zone, to the second; 0, which imports have for none, is unknown."""
    if epoch_ms is None:
        return None
    if epoch_ms == 0:
        return "unknown"
    return datetime.fromtimestamp(epoch_ms // 1000).astimezone().isoformat(timespec="seconds")


def _cell(value: Cell) -> str:
    return "-" if value is None or value == "" else sanitize_line(str(value))


def _columns(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _shrink(widths: list[int], shrinkable: Sequence[int]) -> None:
    """Take what a line exceeds the terminal by from the shrinkable columns, the last one first."""
    if not sys.stdout.isatty():
        return
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - shutil.get_terminal_size().columns
    for at in reversed(shrinkable):
        cut = min(max(excess, 0), max(widths[at] - _MIN_WIDTH, 0))
        widths[at] -= cut
        excess -= cut


def _line(texts: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    cells: list[str] = []
    for text, width, aligned_right in zip(texts, widths, is_number, strict=True):
        cell = _cut(text, width)
        padding = " " * (width - _columns(cell))
        cells.append(padding + cell if aligned_right else cell + padding)
    return _GAP.join(cells).rstrip()


def _cut(text: str, width: int) -> str:
    if _columns(text) <= width:
        return text
    while _columns(text) > width - 1:
        text = text[:-1]
    return text + _ELLIPSIS
