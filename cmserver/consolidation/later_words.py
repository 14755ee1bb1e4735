"""Tells whether what a user says takes the place of what users said before: only where the words leave no doubt."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from cmserver.consolidation.difference import find_difference
from cmserver.consolidation.marks import load_words, read_marks
from cmserver.rules.conclusions import content_words

LaterVerdict = Literal["replaces", "may_replace"]

_FEW, _MIN_SHARE, _MIN_SHARE_IN_DOUBT = 2, 0.4, 0.5


def judge_later(older: str, newer: str) -> LaterVerdict | None:
    """Whether the newer words replace the older ones, or may; None where both hold."""
    before, after = find_matter(older), find_matter(newer)
    shared = before & after
    share = len(shared) / max(1, len(before))
    if find_matter(_find_given_up(newer)) & before and not find_matter(_find_given_up(older)) & shared:
        return "replaces"
    if len(shared) >= _FEW and share >= _MIN_SHARE and _patterns()["later"].search(newer):
        return "replaces"
    if len(shared) >= _FEW and share >= _MIN_SHARE_IN_DOUBT and find_difference(read_marks(older), read_marks(newer)):
        return "may_replace"
    return None


def find_matter(text: str) -> set[str]:
    """The words that tell what it is about, cut so that inflected forms are the same."""
    return content_words(text) - _general()


def _find_given_up(text: str) -> str:
    """The words that stand where something is given up."""
    return " ".join(word for match in _patterns()["given_up"].finditer(text) for word in match.groups() if word)


@cache
def _general() -> frozenset[str]:
    return frozenset(word[:5] for word in load_words().general)


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    words, name = load_words(), r"(`[^`]{1,60}`|[\w./@-]+(?: [\w./@-]+)?)"
    before, after = "|".join(words.given_up_before), "|".join(words.given_up_after)
    return {
        "later": re.compile(
            "|".join(rf"(?<!\w)(?:{part})(?!\w)" if part.isascii() else part for part in words.later), re.IGNORECASE
        ),
        "given_up": re.compile(rf"(?<!\w)(?:{before}){name}|([\w./@-]+(?: [\w./@-]+)?)(?:{after})(?!\w)", re.IGNORECASE),
    }
