"""Checks pins: one search by words for all of a project's questions, without a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.observations.model import Observation
from cmserver.pins import repository
from cmserver.pins.model import Pin, PinResult
from cmserver.recall.search.model import Hit, Ranking
from cmserver.recall.search.search import find_first_hits


async def check_pins(conn: Conn, principal: Principal, pins: Sequence[Pin], ranking: Ranking) -> list[PinResult]:
    """What the memory answers to each pin's question now, in their order, and keep of each whether it holds."""
    results: dict[int, PinResult] = {}
    for project_id, group in groupby(sorted(pins, key=attrgetter("project_id")), key=attrgetter("project_id")):
        of_project = list(group)
        queries = [(pin.question, pin.lines) for pin in of_project]
        found = await find_first_hits(conn, principal, project_id, queries, ranking)
        results |= {pin.number: judge_pin(pin, hits) for pin, hits in zip(of_project, found, strict=True)}
    checked = [results[pin.number] for pin in pins]
    await repository.keep_results(conn, principal.team_id, [pin.id for pin in pins], [result.holds for result in checked])
    return checked


def judge_pin(pin: Pin, hits: Sequence[Hit]) -> PinResult:
    """Whether the first hits have all words that must come, and none that must not."""
    text = "\n".join(map(_text_of, hits))
    return PinResult(
        pin=pin,
        hits=[hit.source.number for hit in hits],
        missing=[word for word in pin.must if not has_word(text, word)],
        unwanted=[word for word in pin.must_not if has_word(text, word)],
    )


def has_word(text: str, word: str) -> bool:
    """Whether the word, or several in this order, stand in the text: whole words, in any case, with any white space between."""
    pattern = r"\s+".join(map(re.escape, word.casefold().split()))
    return bool(pattern) and re.search(rf"(?<!\w){pattern}(?!\w)", text.casefold()) is not None


def _text_of(hit: Hit) -> str:
    source = hit.source
    if isinstance(source, Observation):
        return "\n".join([source.title or "", source.subtitle or "", source.narrative or "", *(source.facts or ()), source.content])
    return f"{source.prompt}\n{source.reply or ''}"
