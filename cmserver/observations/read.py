"""Reading observations. Whoever reads their text leaves an audit row: which ones and by which door, never the words asked for."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, Issue, NotFound
from cmserver.base.ids import parse_id
from cmserver.base.sql import Conn
from cmserver.observations import repository
from cmserver.observations.model import EventLink, Observation, ObservationSource

_NUMBER = re.compile(r"#?([0-9]{1,18})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Observations, newest first, and the cursor of the next page when there is one."""

    observations: list[Observation]
    next_cursor: str | None


async def page(
    conn: Conn,
    principal: Principal,
    *,
    project_id: UUID | None,
    limit: int,
    session_id: UUID | None = None,
    kind: str | None = None,
    type_: str | None = None,
    cursor: str | None = None,
) -> Page:
    """The newest observations of the project, or of the whole team without one, from the cursor on."""
    before, before_id = _place(cursor) if cursor is not None else (None, None)
    rows = await repository.newest(
        conn,
        principal.team_id,
        project_id=project_id,
        limit=limit + 1,
        session_id=session_id,
        kind=kind,
        type_=type_,
        before=before,
        before_id=before_id,
    )
    shown = rows[:limit]
    await served(conn, principal, project_id, "list", shown)
    return Page(observations=shown, next_cursor=_cursor(shown[-1]) if len(rows) > limit else None)


async def one(conn: Conn, principal: Principal, named: str) -> tuple[Observation, list[ObservationSource]]:
    """The observation of that id, or number in the team (`12`, `#12`), and what it was drawn from.

    NotFound also when it belongs to a project that the key may not see.
    """
    found = await _named(conn, principal.team_id, named)
    if found is None or principal.project_id not in (None, found.project_id):
        raise NotFound("There is no such observation.")
    sources = await repository.sources(conn, principal.team_id, [found.id])
    await served(conn, principal, found.project_id, "get", [found])
    return found, sources


async def of_event(conn: Conn, principal: Principal, project_id: UUID, event_id: UUID) -> list[tuple[Observation, EventLink]]:
    """What was drawn from an event of the project, each with its link to it, by number."""
    found = await repository.of_event(conn, principal.team_id, event_id)
    links = {link.observation_id: link for link in await repository.links_of_event(conn, principal.team_id, event_id)}
    await served(conn, principal, project_id, "event", found)
    return [(each, links[each.id]) for each in found if each.id in links]


async def served(conn: Conn, principal: Principal, project_id: UUID | None, via: str, observations: Sequence[Observation]) -> None:
    """Note which observations somebody was given. `project_id` is None when they may be of any project of the team."""
    if not observations:
        return
    resource, resource_id = ("project", project_id) if project_id else ("team", principal.team_id)
    numbers = [each.number for each in observations]
    await audit.record(
        conn, principal, "observations.served", resource, resource_id, project_id=project_id, via=via, numbers=numbers
    )


async def _named(conn: Conn, team_id: UUID, named: str) -> Observation | None:
    if number := _NUMBER.fullmatch(named):
        return await repository.by_number(conn, team_id, int(number[1]))
    observation_id = parse_id(named.lower())
    return await repository.by_id(conn, team_id, observation_id) if observation_id else None


def _cursor(last: Observation) -> str:
    microseconds = (last.created_at - _EPOCH) // _MICROSECOND
    return base64.urlsafe_b64encode(microseconds.to_bytes(8, signed=True) + last.id.bytes).decode()


def _place(cursor: str) -> tuple[datetime, UUID]:
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
        return _EPOCH + int.from_bytes(raw[:8], signed=True) * _MICROSECOND, UUID(bytes=raw[8:])
    except (binascii.Error, ValueError, OverflowError) as error:
        message = "This is not a cursor of this list. Leave it out to start at the newest, or send `nextCursor` as it came."
        raise Invalid(message, [Issue("$.cursor", message)]) from error
