"""How commands print for people: aligned tables, local times, and no characters that control a terminal."""

from __future__ import annotations

import os
import re
import shlex
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
_NAME = "cmserver"
_MIN_WIDTH = 12
_ELLIPSIS = "…"
_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
Cell = str | int | UUID | None
R = TypeVar("R", bound=msgspec.Struct)


class TextCommand(click.Command):
    """A command whose argument is somebody's text: one that begins with a dash is no option that is missing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = f"A text that begins with a dash comes after --: `{ctx.command_path} -- '-…'`."
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from error


def render_json(raw: bytes) -> str:
    """JSON for a terminal, too: what controls one, or turns the direction of a line, is escaped in its texts."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.format(raw).decode())


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


def render_erasure(sentence: str, counts: msgspec.Struct) -> str:
    """The sentence, and below it how many rows of each kind were deleted."""
    fields: dict[str, int] = msgspec.to_builtins(counts)
    return f"{sentence}\n{render_fields(*fields.items())}"


def format_time(epoch_ms: int | None) -> str | None:
    """A time of the API as ISO 8601 in the local time zone, to the second; 0, which imports have for none, is unknown."""
    if epoch_ms is None:
        return None
    if epoch_ms == 0:
        return "unknown"
    return datetime.fromtimestamp(epoch_ms // 1000).astimezone().isoformat(timespec="seconds")


def program_name() -> str:
    """What the user types for cmserver: `cmserver`, or the path of a checkout's bin/cmserver as it was called."""
    called = os.environ.get("CMSERVER_COMMAND") or _NAME
    return _NAME if called in {_NAME, shutil.which(_NAME)} else shlex.quote(sanitize_line(called))


def as_called(text: str) -> str:
    """The text, in which commands in backticks begin with what the user types for cmserver."""
    return text.replace(f"`{_NAME} ", f"`{program_name()} ")


def mask_key(text: str, key: str | None) -> str:
    """The text without the key, should a provider repeat it."""
    return text.replace(key, "***") if key else text


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
