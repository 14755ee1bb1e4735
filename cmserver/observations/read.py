"""Reading observations. Whoever reads their text leaves an audit row: which ones and by which door, never the words asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.errors import NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.observations import repository
from cmserver.observations.model import EventLink, Observation, ObservationSource
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session

NO_SUCH = "There is no such observation."
NO_SUMMARY = "This session has no summary."

_NUMBER = re.compile(r"#?[Ss]?([0-9]{1,18})")
"""With an S it is that of a summary, as some lists show it."""


class Numbered(Protocol):
    """An observation, or what is shown of one."""

    @property
    def number(self) -> int: ...


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
    scope: str | None = None,
    cursor: str | None = None,
) -> Page:
    """The newest observations of the project, or of the whole team without one, from the cursor on."""
    before, before_id = paging.place(cursor)
    if session_id is not None and project_id is None:
        session = await sessions.by_id(conn, principal.team_id, session_id)
        if session is None:
            return Page(observations=[], next_cursor=None)
        project_id = session.project_id  # the index has the session behind its project
    rows = await repository.newest(
        conn,
        principal.team_id,
        project_id=project_id,
        limit=limit + 1,
        session_id=session_id,
        kind=kind,
        type_=type_,
        scope=scope,
        before=before,
        before_id=before_id,
    )
    shown, more = paging.page(rows, limit, lambda one: (one.created_at, one.id))
    await served(conn, principal, project_id, "list", shown)
    return Page(observations=shown, next_cursor=more)


class Several(msgspec.Struct, frozen=True, kw_only=True):
    """Observations in the order in which they were asked for, each once, and the names of which there is none."""

    observations: list[Observation]
    missing: list[int | str]


async def one(conn: Conn, principal: Principal, named: str) -> tuple[Observation, list[ObservationSource]]:
    """The observation of that id, or number in the team (`12`, `#12`, `S12`), and what it was drawn from.

    NotFound also when it belongs to a project that the key may not see. What another project shares with the team may be read,
    but not what it was drawn from.
    """
    found = await find(conn, principal, named)
    is_own = principal.sees(found.project_id)
    sources = await repository.sources(conn, principal.team_id, [found.id]) if is_own else []
    await served(conn, principal, found.project_id, "get", [found])
    return found, sources


async def many(conn: Conn, principal: Principal, named: Sequence[str]) -> dict[str, Observation]:
    """By what they were named (as in `one`), in that order, those that exist and that the key may see."""
    numbers, ids = {text: number_of(text) for text in named}, {text: named_id(text) for text in named}
    found = await repository.by_numbers(conn, principal.team_id, {each for each in numbers.values() if each is not None})
    found += await repository.by_ids(conn, principal.team_id, [each for each in ids.values() if each])
    by_name: dict[int | UUID, Observation] = {}
    for each in found:
        if principal.sees(each.project_id) or each.scope == "team":
            by_name |= {each.number: each, each.id: each}
    names = [(text, number if number is not None else ids[text]) for text, number in numbers.items()]
    shown = {text: by_name[name] for text, name in names if name is not None and name in by_name}
    projects = {each.project_id for each in shown.values()}
    project_id = projects.pop() if len(projects) == 1 else principal.project_id
    await served(conn, principal, project_id, "batch", list({each.id: each for each in shown.values()}.values()))
    return shown


async def several(conn: Conn, principal: Principal, named: Sequence[int | str]) -> Several:
    """The observations of these numbers and ids, however often and in whatever form each is named."""
    names = list(dict.fromkeys(named))
    found = await many(conn, principal, [str(name) for name in names])
    shown = list({each.id: each for each in found.values()}.values())
    return Several(observations=shown, missing=[name for name in names if str(name) not in found])


async def find(conn: Conn, principal: Principal, named: str) -> Observation:
    """The observation of that id or number, or NotFound; leaves no trace, so its text must not be shown."""
    found = await _named(conn, principal.team_id, named)
    if found is None or not (principal.sees(found.project_id) or found.scope == "team"):
        raise NotFound(NO_SUCH)
    return found


async def summary(conn: Conn, principal: Principal, session: Session) -> Observation:
    """The newest summary of a session that the key may see, or NotFound."""
    found = await repository.newest(
        conn, principal.team_id, project_id=session.project_id, session_id=session.id, kind="summary", limit=1
    )
    if not found:
        raise NotFound(NO_SUMMARY)
    await served(conn, principal, session.project_id, "get", found)
    return found[0]


async def of_event(conn: Conn, principal: Principal, project_id: UUID, event_id: UUID) -> list[tuple[Observation, EventLink]]:
    """What was drawn from an event of the project, each with its link to it, by number."""
    found = await repository.of_event(conn, principal.team_id, event_id)
    links = {link.observation_id: link for link in await repository.links_of_event(conn, principal.team_id, event_id)}
    await served(conn, principal, project_id, "event", found)
    return [(each, links[each.id]) for each in found if each.id in links]


async def served(conn: Conn, principal: Principal, project_id: UUID | None, via: str, observations: Sequence[Numbered]) -> None:
    """Note which observations somebody was given. `project_id` is None when they may be of any project of the team.

    By `via` accesses are counted: VIAS of observations.accesses.count has those by which a text is read whole.
    """
    if not observations:
        return
    resource, resource_id = ("project", project_id) if project_id else ("team", principal.team_id)
    numbers = [each.number for each in observations]
    await audit.record(
        conn, principal, "observations.served", resource, resource_id, project_id=project_id, via=via, numbers=numbers
    )


def number_of(named: str) -> int | None:
    """The number that is written so (`12`, `#12`, `S12`, `#S12`), if it is one."""
    found = _NUMBER.fullmatch(named)
    return int(found[1]) if found else None


async def _named(conn: Conn, team_id: UUID, named: str) -> Observation | None:
    if (number := number_of(named)) is not None:
        return await repository.by_number(conn, team_id, number)
    observation_id = named_id(named)
    return await repository.by_id(conn, team_id, observation_id) if observation_id else None
