"""Tells whether what a user says takes the place of what users said before: only where the words leave no doubt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

import msgspec

from cmserver.consolidation.difference import find_difference
from cmserver.consolidation.marks import load_words, read_marks
from cmserver.reading.conclusions import content_words

_FEW, _MIN_SHARE, _MIN_SHARE_IN_DOUBT = 2, 0.4, 0.5
_MAX_CHARS = 600
_COMPARED = 20


class _Words(msgspec.Struct, frozen=True):
    """What a user laid down: its matter, what it gives up, and whether it says of itself that it is the later word."""

    text: str
    matter: set[str]
    given_up: set[str]
    is_later: bool


def replaces(older: str, newer: str) -> bool:
    """Whether the newer words take the place of the older ones. The first 600 characters of each count."""
    before, after = _read(older[:_MAX_CHARS]), _read(newer[:_MAX_CHARS])
    if after.given_up & before.matter and not before.given_up & after.matter:
        return True
    return after.is_later and _is_same_matter(before, after, _MIN_SHARE)


def find_doubtful(older: Sequence[str], newer: str) -> int | None:
    """The place of the first of the older words that may be replaced: about the same matter, and saying something else.

    Only the first few about the same matter are compared: a comparison takes milliseconds.
    """
    after = _read(newer[:_MAX_CHARS])
    words = [(place, _read(text[:_MAX_CHARS])) for place, text in enumerate(older)]
    near = [(place, before) for place, before in words if _is_same_matter(before, after, _MIN_SHARE_IN_DOUBT)]
    marks = read_marks(after.text)
    return next((place for place, before in near[:_COMPARED] if find_difference(read_marks(before.text), marks)), None)


def _is_same_matter(before: _Words, after: _Words, min_share: float) -> bool:
    shared = len(before.matter & after.matter)
    return shared >= _FEW and shared / len(before.matter) >= min_share


@lru_cache(maxsize=2_000)
def _read(text: str) -> _Words:
    patterns = _patterns()
    given_up = " ".join(word for match in patterns["given_up"].finditer(text) for word in match.groups() if word)
    return _Words(text, _find_matter(text), _find_matter(given_up), patterns["later"].search(text) is not None)


def _find_matter(text: str) -> set[str]:
    """The words that tell what it is about, cut so that inflected forms are the same."""
    return content_words(text) - _general()


@cache
def _general() -> frozenset[str]:
    return frozenset(word[:5] for word in load_words().general)


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    words, name = load_words(), r"[\w./@-]+(?: [\w./@-]+)?"
    before, after = "|".join(words.given_up_before), "|".join(words.given_up_after)
    return {
        "later": re.compile(
            "|".join(rf"(?<!\w)(?:{part})(?!\w)" if part.isascii() else part for part in words.later), re.IGNORECASE
        ),
        "given_up": re.compile(
            rf"(?<!\w)(?:{before})(`[^`]{{1,60}}`|{name})|(?<![\w./@-])({name})(?:{after})(?!\w)", re.IGNORECASE
        ),
    }
