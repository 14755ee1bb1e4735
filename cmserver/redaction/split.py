"""Secrets that a line break divides: a continued line, texts put together over several lines, a wrapped token."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cmserver.redaction.rule import Gate, Rule, scan
from cmserver.redaction.spans import Span

_QUOTE = r"[\"'`]"
_ESCAPES = r"\\{0,7}"
_INDENT = r"(?:[ \t]|\\{1,4}t){0,40}"
_RUN = r"[\w+/=.-]"
_NEXT_VALUE = rf"(?=[ \t\\]){_INDENT}[brufBRUF]{{0,2}}{_ESCAPES}{_QUOTE}[^\"'`\n]{{1,200}}{_QUOTE}(?![ \t]{{0,3}}:)"
_MARK = r"(?:[ \t]{0,8}\d{1,6}(?:[\u2192\t:|]|\\{1,4}(?:t|u2192))|[+>-])?"
"""What a tool writes before each line: its number, or the sign of a diff or mail."""
_NEXT_TEXT = rf"{_MARK}{_INDENT}[+.&]?[ \t]{{0,4}}[brufBRUF]{{0,2}}{_ESCAPES}{_QUOTE}"


def _behind(*endings: str) -> str:
    """Looks back from the first character of a line's end, or from a plus, at what is before it."""
    return "(?:" + "|".join(rf"(?<={ending}[\r\n\\+])" for ending in endings) + ")"


# A line's end may be escaped once or twice, as in JSON.
_REST = r"(?:(?<=\n)|(?<=\r)\n|(?<=\\)\\{0,4}(?:r\\{1,4})?n)"
_ENDS_OPEN = _behind(r"[\"'`+.&_(|>=: \\-]")
_ENDS_TEXT = _behind(_QUOTE, rf"{_QUOTE}[+.&\\]", rf"{_QUOTE} [+.&\\]", f"{_QUOTE} & _")
_ENDS_NAME = _behind("[:=]", "[:=] ", "=[(]", "= [(]")
_BREAK = re.compile(
    r"[\r\n\\](?:(?<=[\r\n])|(?=\\{0,4}(?:r\\{1,4})?n))(?:"
    rf"{_ENDS_OPEN}(?:(?P<quoted>{_ENDS_TEXT}{_REST}(?={_NEXT_TEXT}))"
    rf"|(?P<continued>(?<=\\[\r\n]){_REST}|(?<=\\\\\\)\\{{0,4}}n)"
    rf"|(?P<opened>{_ENDS_NAME}{_REST}(?={_NEXT_VALUE})|{_behind(': [|>]', ': [|>][+-]')}{_REST}(?=[ \t]{{1,40}}\S)))"
    rf"|(?P<wrapped>{_behind(f'{_RUN}{{60}}')}{_REST}(?={_MARK}{_INDENT}{_RUN}{{8}})))"
    rf"|\+(?P<added>{_behind(_QUOTE, f'{_QUOTE} ')}(?=[ \t]{{0,4}}[brufBRUF]{{0,2}}{_ESCAPES}{_QUOTE}))",
    re.ASCII,
)
# What goes with a break, before it and behind it.
_TAKEN = {
    "quoted": (rf"{_ESCAPES}{_QUOTE}[ \t]{{0,2}}[+.&\\]?[ \t]?_?\\{{0,2}}", _NEXT_TEXT),
    # YAML leaves out the next line's indentation, the shell keeps it between arguments.
    "continued": (r"\\{1,6}", rf"{_MARK}(?:[ \t]+(?={_RUN}{{4,200}}{_ESCAPES}{_QUOTE}))?"),
    "opened": (r"[ \t]?[(|>]?[+-]?", _INDENT),
    "wrapped": ("", _MARK + _INDENT),
    "added": (rf"{_ESCAPES}{_QUOTE}[ \t]?", _NEXT_TEXT),
}
_BEFORE = {kind: re.compile(rf"{before}\Z") for kind, (before, _) in _TAKEN.items()}
_AFTER = {kind: re.compile(after) for kind, (_, after) in _TAKEN.items()}
_BEFORE_CHARS = 16
_AROUND_CHARS = 1024
"""So much of the text before and behind a break is searched without it."""


class _Joined(NamedTuple):
    """A part of a text without its breaks. Each piece begins at `starts` in it, and at `origins` in the text."""

    pieces: list[str]
    starts: list[int]
    origins: list[int]

    def add(self, piece: str, origin: int) -> None:
        """Add a piece, and where the next one begins in the text."""
        self.pieces.append(piece)
        self.starts.append(self.starts[-1] + len(piece))
        self.origins.append(origin)

    def restore(self, span: Span) -> Span:
        """The span in the text, breaks within it included."""
        first = bisect_right(self.starts, span.start) - 1
        last = bisect_left(self.starts, span.end) - 1
        start, end = (place - self.starts[piece] + self.origins[piece] for place, piece in ((span.start, first), (span.end, last)))
        return Span(start, end, span.kind)


def _find_joined(text: str) -> Iterator[_Joined]:
    """The parts of the text that have breaks."""
    joined, end = None, 0
    for found in scan(_BREAK, text):
        kind = found.lastgroup or ""
        before = _BEFORE[kind].search(text, max(end, found.start() - _BEFORE_CHARS), found.start())
        after = _AFTER[kind].match(text, found.end())
        if before is None or after is None:
            continue  # another break has taken what is before it
        if joined is not None and before.start() > end + 2 * _AROUND_CHARS:
            yield _end_joined(joined, text, end)
            joined = None
        if joined is None:
            earliest = max(end, before.start() - _AROUND_CHARS)
            end = (text.find("\n", earliest, before.start()) + 1 if earliest else 0) or earliest
            joined = _Joined([], [0], [end])
        joined.add(text[end : before.start()], after.end())
        end = after.end()
    if joined is not None:
        yield _end_joined(joined, text, end)


def _end_joined(joined: _Joined, text: str, end: int) -> _Joined:
    """The part with what is behind its last break, in whole lines if they are not too long."""
    last = end + _AROUND_CHARS
    if last < len(text):
        last = text.rfind("\n", end, last) + 1 or last
    joined.add(text[end:last], last)
    return joined


def split_rule(find: Callable[[str], Iterator[Span]]) -> Rule:
    """A rule that finds what `find` finds where the breaks of a text are taken out."""

    def find_split(text: str, _low: str) -> Iterator[Span]:
        for joined in _find_joined(text):
            yield from map(joined.restore, find("".join(joined.pieces)))

    return Rule(("",), False, find_split, Gate("", _BREAK))
