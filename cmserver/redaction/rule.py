"""A rule: a form of secret, and what a text must contain for the rule to be tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cmserver.redaction.spans import Span

REACH = 8192
"""This many characters on both sides of a position decide whether a secret is there."""
WINDOW = 8192
"""A search reads this many characters, and REACH behind them, in one step: a step holds the interpreter, and all requests wait."""

_PIECE_CHARS = 100_000

Find = Callable[[str, str], Iterator[Span]]


class Gate(NamedTuple):
    """Replaces the search for many needles by one: the pattern, which begins with `sign`, and is tried on texts that have it."""

    sign: str
    pattern: re.Pattern[str]


class Rule(NamedTuple):
    """A form of secret. `find` takes the text, and the text after `lower`."""

    needles: tuple[str, ...]
    """A text (after `lower` if `lowered`) without any of them has no such secret."""
    lowered: bool
    find: Find
    gate: Gate | None = None
    """Searched in the unchanged text instead of the needles. Rules may share one."""


def pattern_rule(
    kind: str,
    needles: str,
    pattern: str,
    check: Callable[[str], bool] | None = None,
    *,
    lowered: bool = False,
    gate: Gate | None = None,
) -> Rule:
    """A rule by a regex. The secret is its group 1, or else the whole match with the word characters behind it.

    `needles` are separated by `|`; `check` may reject a match.
    """
    compiled = re.compile(pattern, re.ASCII)
    group = 1 if compiled.groups else 0
    if not group:
        compiled = re.compile(pattern + r"[\w-]*+", re.ASCII)

    def find(text: str, low: str) -> Iterator[Span]:
        for match in scan(compiled, low if lowered else text):
            start, end = match.span(group)
            if start >= 0 and (check is None or check(text[start:end])):
                yield Span(start, end, kind)

    return Rule(tuple(needles.split("|")), lowered, find, gate)


def scan(pattern: re.Pattern[str], text: str, start: int = 0, end: int | None = None) -> Iterator[re.Match[str]]:
    """The matches of `pattern.finditer`, searched window by window. A match that is longer than REACH is read whole."""
    end = len(text) if end is None else end
    while start < end:
        window_end = start + WINDOW
        limit = window_end + REACH
        if limit >= end:
            yield from pattern.finditer(text, start, end)
            return
        for match in pattern.finditer(text, start, limit):
            if match.start() >= window_end:
                break
            whole = pattern.match(text, match.start(), end) or match if match.end() == limit else match
            start = whole.end()
            yield whole
            if start >= window_end:
                break
        start = max(start, window_end)


def has_match(pattern: re.Pattern[str], text: str) -> bool:
    """Whether the pattern matches anywhere in the text, searched window by window."""
    return next(scan(pattern, text), None) is not None


def lower(text: str) -> str:
    """The text in lower case, with every character at its position: only U+0130 would become two characters."""
    if text.isascii():
        return text.lower()
    # In pieces: other letters take a hundred times as long, and the interpreter is held meanwhile.
    pieces = (text[start : start + _PIECE_CHARS] for start in range(0, len(text), _PIECE_CHARS))
    return "".join(piece.replace("\u0130", "i").lower() for piece in pieces)
