"""Lets what users lay down or decide take the place of what they had said before about the same matter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.access.audit import repository as audit_log
from cmserver.base.sql import Conn
from cmserver.consolidation.combine import combine, text_of
from cmserver.consolidation.later_words import find_doubtful, replaces
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import SYSTEM, Change
from cmserver.observations.model import MAY_REPLACE, REPLACES, Observation

_COMPARED = 200
_MOST = 3
"""Words that would take the place of more than so many are about something broader: nothing is replaced by them."""


class EarlierWords(msgspec.Struct, frozen=True):
    """What stands for words that users said before: what the newer ones replace, and the number of what they may replace."""

    replaced: Sequence[Observation] = ()
    perhaps: int | None = None

    @property
    def metadata(self) -> dict[str, object]:
        """The mark of the newer observation."""
        if self.replaced:
            return {REPLACES: max(row.number for row in self.replaced)}
        return {MAY_REPLACE: self.perhaps} if self.perhaps else {}


async def find_earlier_words(conn: Conn, team_id: UUID, project_id: UUID, words: Sequence[str]) -> list[EarlierWords]:
    """What users said before about the matter of each of the words, nothing for "". Takes the project's lock."""
    if not any(words):
        return [EarlierWords() for _ in words]
    await history.lock_project(conn, project_id)
    earlier = await observations.laid_down(conn, team_id, project_id, _COMPARED)
    # 200 comparisons for each text: a batch of them would stop the event loop.
    return await asyncio.to_thread(_compare, earlier, words)


def _compare(earlier: Sequence[Observation], words: Sequence[str]) -> list[EarlierWords]:
    """For each of the words what stands for it. What the first of them replace, the others do not find any more."""
    found: list[EarlierWords] = []
    for newer in words:
        texts = [row.quote or row.title or row.content for row in earlier] if newer else []
        replaced = [row for row, text in zip(earlier, texts, strict=False) if replaces(text, newer)]
        if 0 < len(replaced) <= _MOST:
            found.append(EarlierWords(replaced))
            earlier = [row for row in earlier if row not in replaced]
        elif replaced:
            found.append(EarlierWords(perhaps=replaced[0].number))
        else:
            place = find_doubtful(texts, newer)
            found.append(EarlierWords(perhaps=None if place is None else earlier[place].number))
    return found


async def replace_earlier_words(conn: Conn, team_id: UUID, newer_id: UUID, earlier: EarlierWords) -> Observation | None:
    """Show the newer in the place of what it replaces, until that is undone; None when nothing is left to replace."""
    rows = await history.lock(conn, team_id, [newer_id, *(row.id for row in earlier.replaced)])
    newer = next((row for row in rows if row.id == newer_id), None)
    replaced = [row for row in rows if row.id != newer_id and row.superseded_by is None]
    if newer is None or not replaced:
        return None
    change = Change(
        action="merged",
        performed_by=SYSTEM,
        source_ids=[row.id for row in replaced],
        strategy="latest_wins",
        measured_by="words",
    )
    stored = await combine(conn, newer, replaced, change, text_of(newer))
    await audit_log.append(
        conn,
        team_id=team_id,
        project_id=newer.project_id,
        actor_id=SYSTEM,
        api_key_id=None,
        action="observation.merged",
        resource_type="observation",
        resource_id=str(newer.id),
        request_id=None,
        details={"sources": [row.number for row in replaced], "strategy": "latest_wins"},
    )
    return stored
