"""Puts later words beside earlier ones among the hits of a search: a hit names the later turn, which stands before it if it fits as
well.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.recall.search.model import Hit
from cmserver.sessions.turns.sentences import repository as sentences

BAND = 0.7
"""A later hit stands before an earlier one about the same matter if its score is at least this part of the best one's."""
_MAX_LATER = 3


async def name_later(conn: Conn, team_id: UUID, hits: Sequence[Hit]) -> list[Hit]:
    """The hits, in their order, with the numbers of the turns in which what they say was taken up later, the newest first."""
    numbers = {number for hit in hits if (number := _turn_number(hit)) is not None}
    later: dict[int, set[int]] = {}
    for pointer in await sentences.pointers(conn, team_id, numbers):
        for place, hit in enumerate(hits):
            if _turn_number(hit) == pointer.number and (hit.turn or pointer.text in _text_of(hit)):
                later.setdefault(place, set()).add(pointer.later_number)
    return [
        msgspec.structs.replace(hit, later=sorted(later[place], reverse=True)[:_MAX_LATER]) if place in later else hit
        for place, hit in enumerate(hits)
    ]


def put_later_first(hits: Sequence[Hit]) -> list[Hit]:
    """The hits, each behind those that it names and whose score is within the band; the best first otherwise."""
    least = BAND * max((hit.score for hit in hits), default=0.0)
    ordered: list[Hit] = []
    for hit in hits:
        if hit.score >= least:
            named = [it for it in hits if it.score >= least and it is not hit and _turn_number(it) in hit.later]
            ordered += [it for it in named if it not in ordered]
        if hit not in ordered:
            ordered.append(hit)
    return ordered


def _turn_number(hit: Hit) -> int | None:
    return hit.turn.number if hit.turn else hit.observation.turn_number if hit.observation else None


def _text_of(hit: Hit) -> str:
    """Of an observation, which may quote a sentence."""
    row = hit.observation
    return "\n".join([row.title or "", row.narrative or row.content, *(row.facts or ())]) if row else ""
