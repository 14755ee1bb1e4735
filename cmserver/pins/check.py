"""Checks pins: one search by words for all of a project's questions, without a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.base.text import UNSEGMENTED
from cmserver.observations.model import Observation
from cmserver.pins import repository
from cmserver.pins.model import Pin, PinResult
from cmserver.recall.search.model import Hit, Ranking
from cmserver.recall.search.search import find_first_hits

_LETTER = rf"[^\W{UNSEGMENTED}]"
"""Of a script with spaces between words."""


async def check_pins_of(conn: Conn, principal: Principal, project_id: UUID | None, ranking: Ranking) -> list[PinResult]:
    """Check the pins of a project, or of all of the team's, as of now."""
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    return await check_pins(conn, principal, await repository.of_team(conn, principal.team_id, project_id), ranking)


async def check_pins(conn: Conn, principal: Principal, pins: Sequence[Pin], ranking: Ranking) -> list[PinResult]:
    """What the memory answers to each pin's question now, in their order, by the words that may be read.

    What is kept of each, whether it holds, goes by all words of the team, whoever asks.
    """
    checked = kept = await _ask(conn, principal, pins, ranking)
    if words := await repository.WORDS.one(conn):
        await repository.READ_WORDS.run(conn, words="")
        kept = await _ask(conn, principal, pins, ranking)
        await repository.READ_WORDS.run(conn, words=words)
    await repository.keep_results(conn, principal.team_id, [pin.id for pin in pins], [result.holds for result in kept])
    return checked


async def _ask(conn: Conn, principal: Principal, pins: Sequence[Pin], ranking: Ranking) -> list[PinResult]:
    results: dict[int, PinResult] = {}
    for project_id, group in groupby(sorted(pins, key=attrgetter("project_id")), key=attrgetter("project_id")):
        of_project = list(group)
        queries = [(pin.question, pin.lines) for pin in of_project]
        found = await find_first_hits(conn, principal, project_id, queries, ranking)
        results |= {pin.number: judge_pin(pin, hits) for pin, hits in zip(of_project, found, strict=True)}
    return [results[pin.number] for pin in pins]


async def find_result(conn: Conn, principal: Principal, pin: Pin, ranking: Ranking) -> PinResult:
    """What the memory answers to one pin's question now; nothing is kept of it."""
    (hits,) = await find_first_hits(conn, principal, pin.project_id, [(pin.question, pin.lines)], ranking)
    return judge_pin(pin, hits)


def judge_pin(pin: Pin, hits: Sequence[Hit]) -> PinResult:
    """Whether the first hits have all words that must come, and none that must not."""
    texts = [fold_text(_text_of(hit)) for hit in hits]

    def comes(word: str) -> bool:
        folded = fold_text(word)
        return any(has_word(text, folded) for text in texts)

    return PinResult(
        pin=pin,
        hits=[hit.source.number for hit in hits],
        missing=[word for word in pin.must if not comes(word)],
        unwanted=[word for word in pin.must_not if comes(word)],
    )


def fold_text(text: str) -> str:
    """The text as `has_word` compares it: in one case, with single spaces."""
    return " ".join(text.casefold().split())


def has_word(text: str, word: str) -> bool:
    """Whether the word, or several in this order, stand in the text: whole words where the script has spaces. Both are folded."""
    return word in text and re.search(rf"(?<!{_LETTER}){re.escape(word)}(?!{_LETTER})", text) is not None


def _text_of(hit: Hit) -> str:
    source = hit.source
    if isinstance(source, Observation):
        return "\n".join([source.title or "", source.subtitle or "", source.narrative or "", *(source.facts or ()), source.content])
    return f"{source.prompt}\n{source.reply or ''}"
