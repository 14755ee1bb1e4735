"""Finds stored tool calls by the ids that their agents gave them, or by short numbers of ours.

An agent's id is no column of an index of its own: the keys by which ingest recognises an event again are made of it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.events import repository as events
from cmserver.events.model import StoredToolUse
from cmserver.ingest.identity import EventFacts, make_event_key

MAX_IDS = 200
_MAX_KEYS = 100_000
"""Made in a thread in some 0.3 s."""
_MAX_PROJECTS = 1_000
_ADAPTERS = ("hook", "import")
_USUAL_PLATFORMS = ("claude", "codex", "cursor")
_RAND_A_BITS = 12
_LOW, _HIGH = 0x8000 << 48, (0xBFFF << 48) | ((1 << 48) - 1)
_MAX_NUMBER = (1 << 60) - 1


def number_of(event_id: UUID) -> int:
    """A number for clients that know no UUIDs: the event's millisecond, and the 12 bits behind it. Below 2 ** 53 until 2039."""
    return (event_id.int >> 80) << _RAND_A_BITS | (event_id.int >> 64) & 0xFFF


def _bounds_of(number: int) -> tuple[UUID, UUID]:
    """The least and the greatest id of that number."""
    head = (number >> _RAND_A_BITS) << 80 | 0x7 << 76 | (number & 0xFFF) << 64
    return UUID(int=head | _LOW), UUID(int=head | _HIGH)


async def find_tool_uses(
    db: Db, principal: Principal, ids: Sequence[int | str], *, project_id: UUID | None, session: str | None
) -> list[StoredToolUse]:
    """The calls with those numbers, or ids of agents, that the principal may see, oldest first. Unknown ones are left out."""
    numbers = {int(id_) for id_ in ids if isinstance(id_, int) or (id_.isascii() and id_.isdecimal() and len(id_) < 20)}
    names = list(dict.fromkeys(id_ for id_ in ids if isinstance(id_, str) and id_))[:MAX_IDS]
    only = principal.project_id or project_id
    async with db.tenant(principal.team_id) as conn:
        projects = await events.projects_of_events(conn, principal.team_id, only, _MAX_PROJECTS) if names else []
        platforms = [*_USUAL_PLATFORMS, *await events.platforms(conn, principal.team_id)] if names else []
    keys = await asyncio.to_thread(_make_keys, principal.team_id, projects, list(dict.fromkeys(platforms)), names)
    bounds = [_bounds_of(number) for number in numbers if 0 <= number <= _MAX_NUMBER][:MAX_IDS]
    async with db.tenant(principal.team_id) as conn:
        found = await events.tool_uses_by_names(conn, principal.team_id, keys, bounds, session)
    return [use for use in found if principal.sees(use.project_id) and only in {None, use.project_id}]


def _make_keys(team_id: UUID, projects: Sequence[UUID], platforms: Sequence[str], names: Sequence[str]) -> list[str]:
    """The keys that the calls may have; of a team with very many projects, those of the newest."""
    keys: list[str] = []
    for project_id in projects:
        if len(keys) > _MAX_KEYS:
            break
        keys += [
            make_event_key(
                EventFacts(
                    team_id=team_id,
                    project_id=project_id,
                    source_adapter=adapter,
                    platform_source=platform or None,
                    source_event_id=f"tool:{name}",
                    session=None,
                    event_type="tool_use",
                    occurred_at=datetime.fromtimestamp(0, UTC),
                    content_hash="",
                )
            )
            for platform in platforms
            for adapter in _ADAPTERS
            for name in names
        ]
    return keys
