"""Writes, corrects and deletes observations by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import NoReturn
from uuid import UUID

import msgspec
from msgspec import UNSET
from psycopg import errors

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.access.projects import NO_SUCH as NO_SUCH_PROJECT
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Invalid, Issue, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.events.model import Origin
from cmserver.observations import repository
from cmserver.observations.model import Correction, ManualObservation, NewObservation, Observation, compose, estimate_tokens
from cmserver.observations.read import NO_SUCH, find_observation
from cmserver.observations.tidy import tidy_observation
from cmserver.observations.wire import ObservationIn
from cmserver.sessions import repository as sessions

_NOT_FOR_TEAM = "This key is bound to one project and may not write what the whole team shares. Use a key without a project."


async def write_observation(
    db: Db,
    projects: Projects,
    principal: Principal,
    observation: ObservationIn,
    *,
    field_max_chars: int,
    size_bytes: int,
    origin: Origin = "api",
) -> Observation:
    """Store one observation, whose request had about `size_bytes`."""
    clean = await _clean(projects, principal, observation, "$", field_max_chars, size_bytes)
    (stored,) = await db.in_tenant(principal.team_id, lambda conn: write(conn, principal, [clean], origin=origin))
    return stored


async def write_observations(
    db: Db,
    projects: Projects,
    principal: Principal,
    observations: Sequence[ObservationIn],
    *,
    field_max_chars: int,
    size_bytes: int,
) -> list[Observation]:
    """Store all of a batch, in its order, or none: an error names the wrong one (`$[3].title`)."""
    clean = [
        await _clean(projects, principal, observation, f"$[{place}]", field_max_chars, size_bytes)
        for place, observation in enumerate(observations)
    ]
    return await db.in_tenant(principal.team_id, lambda conn: write(conn, principal, clean))


async def _clean(
    projects: Projects, principal: Principal, observation: ObservationIn, at: str, field_max_chars: int, size_bytes: int
) -> ManualObservation:
    try:
        project = await projects.named_or_own(principal, observation.project_id, at=f"{at}.projectId")
    except NotFound as error:
        raise NotFound(str(error), [] if at == "$" else [Issue(f"{at}.projectId", str(error))]) from error
    draft = reshape(observation, ManualObservation, project_id=project.id, server_session_id=observation.session_id, at=at)
    return await tidy_observation(draft, field_max_chars=field_max_chars, size_bytes=size_bytes)


async def write(
    conn: Conn, principal: Principal, observations: Sequence[ManualObservation], *, origin: Origin = "api"
) -> list[Observation]:
    """Store all of these tidy observations or none; returns them as stored, in the same order."""
    if principal.project_id is not None and any(observation.scope == "team" for observation in observations):
        raise Forbidden(_NOT_FOR_TEAM)
    await _check_times(conn, observations)
    await _check_projects_and_sessions(conn, principal, observations)
    new = [_new_observation(observation, origin) for observation in observations]
    by_project = sorted(zip(observations, new, strict=True), key=lambda pair: str(pair[0].project_id))
    grouped = [
        (project_id, [row for _, row in pairs]) for project_id, pairs in groupby(by_project, lambda pair: pair[0].project_id)
    ]
    for project_id, rows in grouped:
        ids = [str(row.id) for row in rows]
        await audit.record(conn, principal, "observations.created", "project", project_id, project_id=project_id, observations=ids)
    # The row of the counter is locked until the transaction ends: take the numbers last.
    numbers = await repository.take_numbers(conn, principal.team_id, len(new))
    number_of = {row.id: number for row, number in zip(new, numbers, strict=True)}
    for project_id, rows in grouped:
        numbered = [msgspec.structs.replace(row, number=number_of[row.id]) for row in rows]
        try:
            await repository.insert(conn, principal.team_id, project_id, numbered)
        except errors.ProgramLimitExceeded:
            _too_many_words()
    await announce.wake_stream(conn)
    stored = {row.id: row for row in await repository.by_ids(conn, principal.team_id, [row.id for row in new])}
    return [stored[row.id] for row in new]


async def correct(conn: Conn, principal: Principal, name: str, correction: Correction) -> Observation:
    """Change the fields that are set in the correction; returns the stored observation.

    A content that only repeats title, subtitle, narrative and facts is composed again with the new title.
    """
    old = await _lock_writable(conn, principal, name)
    if correction.scope == "team":
        if principal.project_id is not None:
            raise Forbidden(_NOT_FOR_TEAM)
        if old.kind == "summary":
            message = "The summary of a session belongs to its project and cannot be shared with the team"
            raise Invalid(f"{message}.", [Issue("$.scope", message)])
    if not correction.fields:
        return old
    title = old.title if correction.title is UNSET else correction.title
    content = old.content
    if old.title is not None and content == compose(old.title, old.subtitle, old.narrative, old.facts):
        content = compose(title, old.subtitle, old.narrative, old.facts)
    if not content:
        message = "The title is the only text"
        raise Invalid(f"{message}: correct it, or delete the observation.", [Issue("$.title", message)])
    new = msgspec.structs.replace(
        old,
        title=title,
        type=old.type if correction.type is UNSET else correction.type,
        concepts=old.concepts if correction.concepts is UNSET else correction.concepts,
        scope=old.scope if correction.scope is UNSET else correction.scope,
        metadata=old.metadata if correction.metadata is UNSET else correction.metadata,
        state=old.state if correction.state is UNSET else correction.state,
        content=content,
        read_tokens=old.read_tokens if content == old.content else estimate_tokens(content),
    )
    try:
        corrected = await repository.correct(conn, principal.team_id, new)
    except errors.ProgramLimitExceeded:
        _too_many_words()
    await audit.record(
        conn, principal, "observation.corrected", "observation", old.id, project_id=old.project_id, fields=correction.fields
    )
    await announce.wake_stream(conn)
    return corrected


async def delete(conn: Conn, principal: Principal, name: str) -> UUID:
    """Delete the observation and its source links, not its events; returns its id."""
    old = await _lock_writable(conn, principal, name)
    await repository.delete(conn, principal.team_id, old.id)
    await audit.record(conn, principal, "observation.deleted", "observation", old.id, project_id=old.project_id, number=old.number)
    await announce.wake_stream(conn)
    return old.id


async def _lock_writable(conn: Conn, principal: Principal, name: str) -> Observation:
    """The observation, locked. Forbidden where the key is bound to another project."""
    observation = await find_observation(conn, principal, name)
    if not principal.sees(observation.project_id):
        raise Forbidden("This observation is shared by another project. A key that is bound to a project may only read it.")
    locked = await repository.lock(conn, principal.team_id, observation.id)
    if locked is None:
        raise NotFound(NO_SUCH)
    return locked


async def _check_times(conn: Conn, observations: Sequence[ManualObservation]) -> None:
    """Raise Invalid, with the path, for an observation that is dated in the future."""
    times = {observation.created_at for observation in observations if observation.created_at}
    future_times = await repository.after_now(conn, times) if times else set[datetime]()
    for observation in observations:
        if observation.created_at in future_times:
            message = "createdAtEpoch is in the future: send when it was written down, in milliseconds"
            raise Invalid(f"{message} (at {observation.at}).", [Issue(f"{observation.at}.createdAtEpoch", message)])


async def _check_projects_and_sessions(conn: Conn, principal: Principal, observations: Sequence[ManualObservation]) -> None:
    """Raise NotFound for a project that does not exist, or a session that is not of it. Locks the projects against deletion."""
    held = await repository.hold_projects(conn, principal.team_id, {observation.project_id for observation in observations})
    session_ids = {observation.server_session_id for observation in observations if observation.server_session_id}
    projects = await sessions.projects_of(conn, principal.team_id, session_ids) if session_ids else {}
    for observation in observations:
        if observation.project_id not in held:
            raise _not_found(NO_SUCH_PROJECT, observation, "project")
        if observation.server_session_id and projects.get(observation.server_session_id) != observation.project_id:
            raise _not_found("Session not found in this project.", observation, "sessionId")


def _not_found(message: str, observation: ManualObservation, field: str) -> NotFound:
    """The error, with the field's path where it is one of a batch. A single observation has another field name in some routes."""
    return NotFound(message, [] if observation.at == "$" else [Issue(f"{observation.at}.{field}", message)])


def _new_observation(observation: ManualObservation, origin: Origin) -> NewObservation:
    """The row to insert, with a new id and its token estimate."""
    content = observation.content or ""
    return reshape(
        observation,
        NewObservation,
        id=new_id(),
        kind="manual",
        origin=origin,
        content=content,
        read_tokens=estimate_tokens(content),
    )


def _too_many_words() -> NoReturn:
    raise Invalid("Too many distinct words to index. Send shorter texts.") from None
