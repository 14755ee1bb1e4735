"""Puts later words beside earlier ones among the hits of a search: a hit names the later turn, which stands before it if it fits as
well, and the turn whose edits took out again what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.base.sentences import split_sentences
from cmserver.base.sql import Conn
from cmserver.reading.own_words import own_words
from cmserver.recall.index.over import LaterTurns
from cmserver.recall.later_rules import find_later_rules
from cmserver.recall.search.model import Hit
from cmserver.recall.turn_line import SIDE_CHARS
from cmserver.sessions.ledger import repository as ledger
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.choose_sentences import choose_sentences
from cmserver.sessions.turns.sentences import repository as sentences

BAND = 0.7
"""A later hit stands before an earlier one that names it if its score is at least this part of the best one's."""
_EVEN_BAND = 0.96
"""From this part on the newest stands first, whatever it says: so near to the best a score tells less than the time. In labelled
dialogues the mean reciprocal rank rises by it from .502 to .509; a band from .9 on lowers it to .485, one from .7 on to .35."""
_MAX_LATER = 3


async def name_later(conn: Conn, team_id: UUID, hits: Sequence[Hit]) -> list[Hit]:
    """The hits, in their order, with the numbers of the turns in which what they say was taken up later, the newest first."""
    numbers = {number for hit in hits if (number := _turn_number(hit)) is not None}
    later: dict[int, set[int]] = {}
    for pointer in await sentences.pointers(conn, team_id, numbers):
        for place, hit in enumerate(hits):
            if _turn_number(hit) == pointer.number and (hit.turn or pointer.text in _text_of(hit)):
                later.setdefault(place, set()).add(pointer.later_number)
    rules = await find_later_rules(conn, team_id, [hit.observation for hit in hits if hit.observation])
    later |= {place: {rules[hit.source.number]} for place, hit in enumerate(hits) if hit.source.number in rules}
    return [
        msgspec.structs.replace(hit, later=sorted(later[place], reverse=True)[:_MAX_LATER]) if place in later else hit
        for place, hit in enumerate(hits)
    ]


async def name_changes(conn: Conn, team_id: UUID, hits: Sequence[Hit]) -> list[Hit]:
    """The hits, with the number of the last turn that took out again what the line of a hit says, as the index marks it."""
    ids = {hit.turn.number: hit.turn.id for hit in hits if hit.turn}
    missing = {number for hit in hits if (number := _turn_number(hit)) is not None} - ids.keys()
    ids |= {turn.number: turn.id for turn in await turns.by_numbers(conn, team_id, missing)} if missing else {}
    entries = await ledger.of_turns(conn, team_id, ids) if ids else []
    if not entries:
        return list(hits)
    over = LaterTurns([], entries)

    def name(hit: Hit) -> Hit:
        number = _turn_number(hit)
        turn_id = ids.get(number) if number is not None else None
        if turn_id is None:
            return hit
        changes = [change for sentence in _line_of(hit) if (change := over.find_change(turn_id, sentence)) is not None]
        return msgspec.structs.replace(hit, changed=max(changes, default=None))

    return [name(hit) for hit in hits]


def put_later_first(hits: Sequence[Hit]) -> list[Hit]:
    """The hits, the newest of those first that fit as well as the best, each behind those within the band that it names."""
    best = max((hit.score for hit in hits), default=0.0)
    even = [hit for hit in hits if hit.score >= _EVEN_BAND * best]
    hits = [*sorted(even, key=lambda hit: hit.source.created_at, reverse=True), *(hit for hit in hits if hit not in even)]
    ordered: list[Hit] = []
    for hit in hits:
        if hit.score >= BAND * best:
            named = [it for it in hits if it.score >= BAND * best and it is not hit]
            ordered += [it for it in named if {_turn_number(it), it.source.number} & set(hit.later) and it not in ordered]
        if hit not in ordered:
            ordered.append(hit)
    return ordered


async def put_ended_last(conn: Conn, team_id: UUID, hits: Sequence[Hit]) -> list[Hit]:
    """The hits, those last whose edits were taken out again, or whose check passes since: they do not hold any more."""
    entries = await ledger.of_turns(conn, team_id, {hit.turn.number for hit in hits if hit.turn})
    passed = {entry.earlier_id for entry in entries if entry.kind == "check"}
    return sorted(hits, key=lambda hit: hit.changed is not None or (hit.turn is not None and hit.turn.id in passed))


def _turn_number(hit: Hit) -> int | None:
    return hit.turn.number if hit.turn else hit.observation.turn_number if hit.observation else None


def _line_of(hit: Hit) -> list[str]:
    """The sentences that a line tells of it."""
    if hit.turn:
        return [*split_sentences(own_words(hit.turn.prompt)), *choose_sentences(hit.turn.reply or "", SIDE_CHARS)]
    row = hit.observation
    return [row.title or row.narrative or row.content] if row else []


def _text_of(hit: Hit) -> str:
    """Of an observation, which may quote a sentence."""
    row = hit.observation
    return "\n".join([row.title or "", row.narrative or row.content, *(row.facts or ())]) if row else ""
