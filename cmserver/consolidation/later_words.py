"""Tells whether what a user says takes the place of what users said before: only where the words leave no doubt."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Literal

import msgspec

from cmserver.consolidation.difference import find_difference
from cmserver.consolidation.marks import load_words, read_marks
from cmserver.rules.conclusions import content_words

LaterVerdict = Literal["replaces", "may_replace"]

_FEW, _MIN_SHARE, _MIN_SHARE_IN_DOUBT = 2, 0.4, 0.5
_MAX_CHARS = 600


class _Words(msgspec.Struct, frozen=True):
    """What a user laid down: its matter, what it gives up, and whether it says of itself that it is the later word."""

    text: str
    matter: set[str]
    given_up: set[str]
    is_later: bool


def judge_later(older: str, newer: str) -> LaterVerdict | None:
    """Whether the newer words replace the older ones, or may; None where both hold. The first 600 characters of each count."""
    before, after = _read(older[:_MAX_CHARS]), _read(newer[:_MAX_CHARS])
    shared = before.matter & after.matter
    share = len(shared) / max(1, len(before.matter))
    if after.given_up & before.matter and not before.given_up & shared:
        return "replaces"
    if len(shared) >= _FEW and share >= _MIN_SHARE and after.is_later:
        return "replaces"
    if len(shared) >= _FEW and share >= _MIN_SHARE_IN_DOUBT and find_difference(read_marks(before.text), read_marks(after.text)):
        return "may_replace"
    return None


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
