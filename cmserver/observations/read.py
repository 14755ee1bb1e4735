"""Reads observations. Giving their text to somebody writes an audit row: which ones, and how; never the words searched for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.errors import Gone, Invalid, NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.observations import repository
from cmserver.observations.accesses.model import VIAS
from cmserver.observations.approval import repository as approvals
from cmserver.observations.lifetime.extend import extend_lives
from cmserver.observations.model import EventLink, GoneObservation, Observation, ObservationFilter, ObservationSource
from cmserver.observations.past.model import Moment
from cmserver.observations.past.travel import VIA, travel
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session
from cmserver.sessions.turns.model import SessionTurn
from cmserver.sessions.turns.read import find_turns, read_turns

NO_SUCH = "There is no such observation."
NO_SUMMARY = "This session has no summary."

_NUMBER = re.compile(r"#?[Ss]?([0-9]{1,18})")
"""Some lists show the number of a summary with an S."""


class HasNumber(Protocol):
    """An observation, or a preview of one."""

    @property
    def number(self) -> int: ...


class ObservationBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Observations in the order of their names, each once, and the names that were not found.

    `turns` are those of the names that are turns. `gone` are those that are not shown any more; their names are among the missing.
    """

    observations: list[Observation]
    turns: list[SessionTurn]
    missing: list[int | str]
    gone: list[GoneObservation]


async def list_observations(
    conn: Conn,
    principal: Principal,
    wanted: ObservationFilter,
    *,
    limit: int,
    cursor: str | None = None,
    moment: Moment | None = None,
) -> tuple[list[Observation], str | None]:
    """A page of the observations of the project, or of the team without one, newest first; and the cursor of the next page.

    With a `moment` they are read as at another time, and so is all else in the transaction; Invalid for what is expired.
    """
    before, before_id = paging.place(cursor)
    if wanted.session_id is not None and wanted.project_id is None:
        session = await sessions.by_id(conn, principal.team_id, wanted.session_id)
        if session is None:
            return [], None
        # The index has the session behind its project.
        wanted = msgspec.structs.replace(wanted, project_id=session.project_id)
    if moment is not None:
        if wanted.state == "expired":
            raise Invalid.at("$.state", "What has expired is listed as it is now: leave out the other time.")
        await travel(conn, principal.team_id, [wanted.project_id] if wanted.project_id else None, moment)
    rows = await repository.newest(conn, principal.team_id, wanted, limit=limit + 1, before=before, before_id=before_id)
    page, next_cursor = paging.page(rows, limit, lambda observation: (observation.created_at, observation.id))
    await audit_read(conn, principal, wanted.project_id, VIA if moment else "list", page)
    return principal.named(page), next_cursor


async def list_closed(
    conn: Conn, principal: Principal, project_id: UUID | None, since: datetime, *, limit: int
) -> list[Observation]:
    """What was done or dropped since then in the project, or in the team without one, the last first."""
    rows = await repository.closed_since(conn, principal.team_id, project_id, since, limit)
    await audit_read(conn, principal, project_id, "list", rows)
    return principal.named(rows)


async def read_observation(conn: Conn, principal: Principal, name: str) -> tuple[Observation, list[ObservationSource]]:
    """The observation with that id, or number in the team (`12`, `#12`, `S12`), and its sources.

    NotFound also when the key may not see its project, and Gone when it is superseded or expired. The sources of what another
    project shares with the team stay hidden.
    """
    observation = await find_observation(conn, principal, name)
    is_own = principal.sees(observation.project_id)
    sources = await repository.sources(conn, principal.team_id, [observation.id]) if is_own else []
    await audit_read(conn, principal, observation.project_id, "get", [observation])
    return observation, sources


async def read_batch(conn: Conn, principal: Principal, names: Sequence[int | str]) -> ObservationBatch:
    """The observations and turns with these numbers and ids, in any of the forms of `read_observation`, each once."""
    unique_names = list(dict.fromkeys(names))
    keys = {name: parse_name(str(name)) for name in unique_names}
    numbers = {key for key in keys.values() if isinstance(key, int)}
    ids = {key for key in keys.values() if isinstance(key, UUID)}
    rows = await repository.by_numbers(conn, principal.team_id, numbers)
    rows += await repository.by_ids(conn, principal.team_id, list(ids))
    by_key: dict[int | UUID | None, Observation] = {}
    sees_shared = await sees_shared_observations(conn, principal)
    for row in principal.named(rows):
        if may_read(principal, row, sees_shared=sees_shared):
            by_key |= {row.number: row, row.id: row}
    observations = list({by_key[key].id: by_key[key] for key in keys.values() if key in by_key}.values())
    project_ids = {observation.project_id for observation in observations}
    project_id = project_ids.pop() if len(project_ids) == 1 else principal.project_id
    await audit_read(conn, principal, project_id, "batch", observations)
    unfound = {key for key in keys.values() if key is not None and key not in by_key}
    turns = await read_turns(conn, principal, unfound) if unfound else {}
    missing = [name for name in unique_names if keys[name] not in by_key and keys[name] not in turns]
    gone = await repository.gone(conn, principal.team_id, numbers=numbers, ids=ids) if missing else []
    return ObservationBatch(
        observations=observations,
        turns=list({turn.id: turn for turn in turns.values()}.values()),
        missing=missing,
        gone=[row for row in gone if may_read(principal, row, sees_shared=sees_shared)],
    )


async def find_observation(conn: Conn, principal: Principal, name: str, *, also_expired: bool = False) -> Observation:
    """The observation of that id or number; NotFound, or Gone. Writes no audit row, so its text must not be shown."""
    observation = await find_any_observation(conn, principal, name)
    for gone in await repository.gone(conn, principal.team_id, ids=[observation.id]):
        if gone.superseded_by is not None:
            raise Gone(f"#{gone.number} was merged into #{gone.superseded_by}.", gone.superseded_by)
        if not also_expired:
            raise Gone(f"#{gone.number} has expired, or was forgotten.")
    return observation


async def find_any_observation(conn: Conn, principal: Principal, name: str) -> Observation:
    """As `find_observation`, also when it is superseded or expired. Gone for a rule to which nobody has said yes."""
    observation = None
    match parse_name(name):
        case int(number):
            observation = await repository.by_number(conn, principal.team_id, number)
        case UUID() as observation_id:
            observation = await repository.by_id(conn, principal.team_id, observation_id)
        case None:
            pass
    sees_shared = await sees_shared_observations(conn, principal)
    if observation is None or not may_read(principal, observation, sees_shared=sees_shared):
        named = parse_name(name)
        turn = (await find_turns(conn, principal, [named])).get(named) if named is not None and observation is None else None
        raise NotFound(f"#{turn.number} is a turn: GET /v1/turns/{turn.number} reads it." if turn else NO_SUCH)
    if observation.expires_at is not None and await approvals.unapproved(conn, principal.team_id, [observation.id]):
        raise Gone(f"#{observation.number} is a rule that counts only after a person's yes: `cmserver rules pending` lists them.")
    return principal.named([observation])[0]


async def read_summary(conn: Conn, principal: Principal, session: Session) -> Observation:
    """The newest summary of a session that the key may see, or NotFound."""
    wanted = ObservationFilter(project_id=session.project_id, session_id=session.id, kind="summary")
    summaries = await repository.newest(conn, principal.team_id, wanted, limit=1)
    if not summaries:
        raise NotFound(NO_SUMMARY)
    await audit_read(conn, principal, session.project_id, "get", summaries)
    return principal.named(summaries)[0]


async def list_summaries(conn: Conn, principal: Principal, sessions: Sequence[Session]) -> dict[UUID, Observation]:
    """The newest summary of each of the sessions that has one, by the session."""
    rows = await repository.summaries_of_sessions(conn, principal.team_id, {session.id: session.project_id for session in sessions})
    await audit_read(conn, principal, principal.project_id, "list", rows)
    return {row.server_session_id: row for row in principal.named(rows) if row.server_session_id}


async def read_event_observations(
    conn: Conn, principal: Principal, project_id: UUID, event_id: UUID
) -> list[tuple[Observation, EventLink]]:
    """The observations made of an event of the project, each with its link to it, by number."""
    observations = await repository.of_event(conn, principal.team_id, event_id)
    links = {link.observation_id: link for link in await repository.links_of_event(conn, principal.team_id, event_id)}
    await audit_read(conn, principal, project_id, "event", observations)
    return [(observation, links[observation.id]) for observation in principal.named(observations) if observation.id in links]


async def audit_read(
    conn: Conn, principal: Principal, project_id: UUID | None, via: str, observations: Sequence[HasNumber]
) -> None:
    """Record which observations somebody was given. `project_id` is None when they may be of any project of the team.

    What a person is shown on a page is `page`, however they came to it, and no access of an agent.
    Accesses are counted by `via`: VIAS of observations.accesses are those that give the whole text, and they extend the lives of
    observations that expire. Rows are locked then: in a transaction that writes more, this comes last.
    """
    if not observations:
        return
    counted = list[int]()
    if principal.kind == "person":
        via = "page"
    if via in VIAS:
        counted = await extend_lives(conn, principal, [row for row in observations if isinstance(row, Observation)])
    details = {"counted": counted} if counted else {}
    resource, resource_id = ("project", project_id) if project_id else ("team", principal.team_id)
    numbers = [observation.number for observation in observations]
    await audit.record(
        conn, principal, "observations.served", resource, resource_id, project_id=project_id, via=via, numbers=numbers, **details
    )


def parse_number(name: str) -> int | None:
    """The number in `12`, `#12`, `S12` or `#S12`."""
    match = _NUMBER.fullmatch(name)
    return int(match[1]) if match else None


async def sees_shared_observations(conn: Conn, principal: Principal) -> bool:
    """Whether the key sees what other projects share with the team: one that is bound to an isolated project does not."""
    return principal.project_id is None or principal.project_id not in await access.isolated(conn, principal.team_id)


def may_read(principal: Principal, observation: Observation | GoneObservation, *, sees_shared: bool) -> bool:
    """Whether the observation is of a project that the key sees, or is shared with it."""
    return principal.sees(observation.project_id) or (sees_shared and observation.scope == "team")


def parse_name(name: str) -> int | UUID | None:
    """The number or id that names an observation; None when it can be neither."""
    number = parse_number(name)
    return named_id(name) if number is None else number
