"""Texts that PostgreSQL can store, and those it can use as keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

KEY_MOST = 500
"""The most characters of a text in an index: 2,000 bytes, so that other columns fit into the 2,704 bytes of its row."""

QUERY_MOST, PROMPT_MOST = 2_000, 10_000
"""The most characters of a query, and of a prompt that is searched with: what reads them does so on the event loop."""
LINE_MOST = 4_096
"""The most characters of a path, a name or a time."""
CURSOR_MOST = 16_384
FIELD_MOST = 16_000
"""The most characters of a payload's field and of a text by hand: of what is longer a model is shown less anyway."""

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
UNSEGMENTED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f"  # Burmese
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
    "\uac00-\ud7a3"  # Korean syllables
)
"""Characters of scripts without spaces between words, as ranges of a regular expression; as unsegmented_characters() in SQL."""

BULLET = re.compile(r"\A[ \t]*+(?:[-*\u2022\u2023\u25aa\u2013\u2014][ \t]++|\u2022|\d{1,3}[.)][ \t]++)")

STORABLE_PATTERN = r"^[\x01-\ud7ff\ue000-\U0010ffff]*+$"
"""In a fifth of the time that `[^\\x00\\ud800-\\udfff]*` takes: 8 MB would stop everybody for a third of a second."""
WHY_UNSTORABLE = "A character that cannot be stored (NUL, or half of a surrogate pair) is in the text"

_WHY_NOT: dict[str, str] = {}
_LENGTH = re.compile(r"Expected `(?P<type>\w+)` of length (?P<side>[<>]=) (?P<number>\d+)")
_RANGE = re.compile(r"Expected `(?:int|float)` (?P<side>[<>]=?) (?P<number>-?\d+(?:\.\d*[1-9])?)(?:\.0)?")
_SIDES = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_UNITS = {"str": "character", "array": "item", "object": "field"}


def matching(pattern: str, why_not: str) -> Meta:
    """The constraint of a text type that must match the pattern; `why_not` is the error's text instead of the pattern."""
    _WHY_NOT[pattern] = why_not
    return Meta(pattern=pattern)


def in_words(refusal: str) -> str:
    """Msgspec's sentence about a text that does not match, or about a limit, as a person can read it."""
    if length := _LENGTH.fullmatch(refusal):
        is_one, most = length["number"] == "1", length["side"] == "<="
        unit = _UNITS[length["type"]] + ("" if is_one else "s")
        end = f"{'is' if is_one else 'are'} {'allowed' if most else 'needed'}"
        return f"{_SIDES[length['side']].capitalize()} {length['number']} {unit} {end}"
    if limit := _RANGE.fullmatch(refusal):
        return f"The number must be {_SIDES[limit['side']]} {limit['number']}"
    return next((words for pattern, words in _WHY_NOT.items() if repr(pattern) in refusal), refusal)


Text = Annotated[str, matching(STORABLE_PATTERN, WHY_UNSTORABLE)]
"""Any text that can be stored as it is."""

Key = Annotated[Text, Meta(min_length=1, max_length=KEY_MOST)]
"""An id that somebody else has given."""

Line = Annotated[Text, Meta(min_length=1, max_length=LINE_MOST)]
"""What is read at once: a path, a time, a name that need not be stored."""

QueryText = Annotated[Text, Meta(min_length=1, max_length=QUERY_MOST)]
"""What is searched for."""

Cursor = Annotated[str, Meta(max_length=CURSOR_MOST)]
"""Where the next page begins, as an answer said."""

LABEL_MOST = 100
Label = Annotated[Text, Meta(min_length=1, max_length=LABEL_MOST)]
"""A short name of a kind, which may stand beside a `Key` in one index."""


def storable(text: str) -> str:
    """The text with U+FFFD for each character that cannot be stored."""
    return UNSTORABLE.sub("\ufffd", text)


def cut_query(text: str) -> str:
    """What is read of a query that comes by another system's door, whose clients cannot shorten it, fit to be searched for."""
    return storable(text[:QUERY_MOST])


def split_commas(text: str | None) -> list[str]:
    """The words between commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def split_lines(text: str) -> list[str]:
    """The lines that are not empty."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def quote_lexeme(lexeme: str) -> str:
    """A lexeme as a tsquery."""
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def shorten(text: str, limit: int) -> str:
    """One line of at most `limit` characters, cut between words."""
    line = " ".join(text[: limit * 8].split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:-") + "…"


def strip_bullet(text: str) -> str:
    """An item of a list without its bullet or number."""
    return BULLET.sub("", text, count=1)


def join_names(names: Sequence[str], limit: int) -> str:
    """`a, b and c`, or `a, b and 4 more`."""
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return "".join(names)
