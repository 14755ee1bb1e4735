"""Names what users said before that their later words may replace. Both stay: whoever reads them sees which holds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.base.words import content_words
from cmserver.consolidation.difference import find_difference
from cmserver.consolidation.marks import load_words, read_marks
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.model import MAY_REPLACE, Observation

_FEW, _MIN_SHARE, _MIN_SHARE_IN_DOUBT = 2, 0.4, 0.5
_MAX_CHARS = 600
_COMPARED = 20
_KEPT = 200


class _Words(msgspec.Struct, frozen=True):
    """What a user laid down: its matter, what it gives up, and whether it says of itself that it is the later word."""

    text: str
    matter: set[str]
    given_up: set[str]
    is_later: bool


async def mark_later_words(conn: Conn, team_id: UUID, project_id: UUID, words: Sequence[str]) -> list[dict[str, object]]:
    """For each of the words of users the metadata that name what users said before and these may replace; nothing for "".

    It only names: both are shown. Takes the project's lock.
    """
    if not any(words):
        return [{} for _ in words]
    await history.lock_project(conn, project_id)
    earlier = await observations.laid_down(conn, team_id, project_id, _KEPT)
    # 200 comparisons for each text: a batch of them would stop the event loop.
    return await asyncio.to_thread(_mark, earlier, words)


def _mark(earlier: Sequence[Observation], words: Sequence[str]) -> list[dict[str, object]]:
    texts = [row.quote or row.title or row.content for row in earlier]
    places = [find_earlier(texts, newer) if newer else None for newer in words]
    return [{} if place is None else {MAY_REPLACE: earlier[place].number} for place in places]


def find_earlier(older: Sequence[str], newer: str) -> int | None:
    """The place of the first of the older words that the newer ones may replace. The first 600 characters of each count.

    Those that they give up, or that are about the same matter where they say that they are the later ones; else the first few
    about the same matter that say something else: that comparison takes milliseconds.
    """
    after = _read(newer[:_MAX_CHARS])
    words = [_read(text[:_MAX_CHARS]) for text in older]
    given_up = (place for place, before in enumerate(words) if _is_given_up(before, after))
    if (place := next(given_up, None)) is not None:
        return place
    near = [(place, before) for place, before in enumerate(words) if _is_same_matter(before, after, _MIN_SHARE_IN_DOUBT)]
    marks = read_marks(after.text)
    return next((place for place, before in near[:_COMPARED] if find_difference(read_marks(before.text), marks)), None)


def _is_given_up(before: _Words, after: _Words) -> bool:
    if after.given_up & before.matter and not before.given_up & after.matter:
        return True
    return after.is_later and _is_same_matter(before, after, _MIN_SHARE)


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
