"""What happened around a moment, or around an observation: what was recorded before it and after it, in the order of time."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.observations.read import find, served

MOST = 50
"""How many are told on either side at most."""

_NUMBER = re.compile(r"#?[Ss]?([0-9]{1,18})")
_FIRST_OF_ALL = UUID(int=0)
_NO_ANCHOR = "An anchor is one of these: the number of an observation (12, #12), of a summary (S12), a time (2026-11-22T10:00:00Z)."


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Summaries and observations, oldest first. `anchor` stands among them, unless it is a mere moment."""

    at: datetime
    anchor: Observation | None
    observations: list[Observation]


async def timeline(conn: Conn, principal: Principal, project_id: UUID | None, anchor: str, *, before: int, after: int) -> Timeline:
    """What was recorded around the anchor: an observation by number or id, or a time in ISO 8601, without a zone in UTC.

    Without a project it is that of the observation; around a mere moment, all that the key may see. NotFound when there is no such
    observation.
    """
    number = _NUMBER.fullmatch(anchor)
    if number or named_id(anchor):
        return await around(
            conn, principal, project_id, await find(conn, principal, number[1] if number else anchor), before, after
        )
    return await _around(conn, principal, project_id, _moment(anchor), _FIRST_OF_ALL, None, before, after)


async def around(
    conn: Conn, principal: Principal, project_id: UUID | None, anchor: Observation, before: int, after: int
) -> Timeline:
    """What was recorded around an observation that the key may see."""
    if project_id is None:
        project_id = principal.project_id or anchor.project_id
    return await _around(conn, principal, project_id, anchor.created_at, anchor.id, anchor, before, after)


async def _around(
    conn: Conn,
    principal: Principal,
    project_id: UUID | None,
    at: datetime,
    last_id: UUID,
    anchor: Observation | None,
    before: int,
    after: int,
) -> Timeline:
    team_id = principal.team_id
    earlier = await observations.newest(conn, team_id, project_id=project_id, limit=min(before, MOST), before=at, before_id=last_id)
    later = await observations.after(conn, team_id, project_id=project_id, limit=min(after, MOST), after=at, after_id=last_id)
    told = [*reversed(earlier), *([anchor] if anchor else []), *later]
    await served(conn, principal, project_id, "timeline", told)
    return Timeline(at=at, anchor=anchor, observations=told)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise Invalid.at("$.anchor", _NO_ANCHOR) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
