"""Observations by hand: written down, corrected, deleted. Nothing is generated from them."""

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
from cmserver.base.errors import Forbidden, Invalid, Issue, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.events.model import Origin
from cmserver.observations import read, repository
from cmserver.observations.model import Correction, Manual, NewObservation, Observation, compose, estimate_tokens
from cmserver.sessions import repository as sessions

_NOT_FOR_ALL = (
    "This key is bound to one project, so it may not write what the whole team shares. "
    "Ask an owner of the team for a key without a project."
)


async def write(conn: Conn, principal: Principal, given: Sequence[Manual], *, origin: Origin = "api") -> list[Observation]:
    """Store all of them (tidy ones) or none, in their order. `origin` is the door that they came through."""
    if principal.project_id is not None and any(one.scope == "team" for one in given):
        raise Forbidden(_NOT_FOR_ALL)
    await _check_times(conn, given)
    await _check_places(conn, principal, given)
    new = [_new(one, origin) for one in given]
    by_project = sorted(zip(given, new, strict=True), key=lambda pair: str(pair[0].project_id))
    grouped = [
        (project_id, [row for _, row in pairs]) for project_id, pairs in groupby(by_project, lambda pair: pair[0].project_id)
    ]
    for project_id, rows in grouped:
        ids = [str(row.id) for row in rows]
        await audit.record(conn, principal, "observations.created", "project", project_id, project_id=project_id, observations=ids)
    # The counter's row is locked until the end: everything above is done first.
    numbers = await repository.take_numbers(conn, principal.team_id, len(new))
    number_of = {row.id: number for row, number in zip(new, numbers, strict=True)}
    for project_id, rows in grouped:
        numbered = [msgspec.structs.replace(row, number=number_of[row.id]) for row in rows]
        try:
            await repository.insert(conn, principal.team_id, project_id, numbered)
        except errors.ProgramLimitExceeded:
            _too_many_words()
    await announce.news(conn)
    stored = {one.id: one for one in await repository.by_ids(conn, principal.team_id, [row.id for row in new])}
    return [stored[row.id] for row in new]


async def correct(conn: Conn, principal: Principal, named: str, correction: Correction) -> Observation:
    """The observation with its labels as they are said to be. A content that was made of its texts is made anew."""
    old = await _own(conn, principal, named)
    if correction.scope == "team":
        if principal.project_id is not None:
            raise Forbidden(_NOT_FOR_ALL)
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
        message = "The title is the only text there is"
        raise Invalid(f"{message}: correct it, or delete the observation.", [Issue("$.title", message)])
    to = msgspec.structs.replace(
        old,
        title=title,
        type=old.type if correction.type is UNSET else correction.type,
        concepts=old.concepts if correction.concepts is UNSET else correction.concepts or None,
        scope=old.scope if correction.scope is UNSET else correction.scope,
        metadata=old.metadata if correction.metadata is UNSET else correction.metadata,
        content=content,
        read_tokens=old.read_tokens if content == old.content else estimate_tokens(content),
    )
    try:
        corrected = await repository.correct(conn, principal.team_id, to)
    except errors.ProgramLimitExceeded:
        _too_many_words()
    await audit.record(
        conn, principal, "observation.corrected", "observation", old.id, project_id=old.project_id, fields=correction.fields
    )
    await announce.news(conn)
    return corrected


async def delete(conn: Conn, principal: Principal, named: str) -> UUID:
    """The id of the observation that was there; its sources go with it, the events that it was drawn from stay."""
    old = await _own(conn, principal, named)
    await repository.delete(conn, principal.team_id, old.id)
    await audit.record(conn, principal, "observation.deleted", "observation", old.id, project_id=old.project_id, number=old.number)
    await announce.news(conn)
    return old.id


async def _own(conn: Conn, principal: Principal, named: str) -> Observation:
    """Locked. Forbidden where the key may only read it, being bound to another project."""
    found = await read.find(conn, principal, named)
    if not principal.sees(found.project_id):
        raise Forbidden("This is shared by another project of the team: a key that is bound to a project may only read it.")
    locked = await repository.lock(conn, principal.team_id, found.id)
    if locked is None:
        raise NotFound(read.NO_SUCH)
    return locked


async def _check_times(conn: Conn, given: Sequence[Manual]) -> None:
    moments = {one.created_at for one in given if one.created_at}
    future = await repository.after_now(conn, moments) if moments else set[datetime]()
    for one in given:
        if one.created_at in future:
            message = "This time is still to come: createdAtEpoch is when it was written down, in milliseconds"
            raise Invalid(f"{message} (at {one.at}).", [Issue(f"{one.at}.createdAtEpoch", message)])


async def _check_places(conn: Conn, principal: Principal, given: Sequence[Manual]) -> None:
    """Each project is there, and stays while we write; each session is of its project."""
    held = await repository.hold_projects(conn, principal.team_id, {one.project_id for one in given})
    named = {one.server_session_id for one in given if one.server_session_id}
    project_of = await sessions.projects_of(conn, principal.team_id, named) if named else {}
    for one in given:
        if one.project_id not in held:
            raise _missing(NO_SUCH_PROJECT, one, "project")
        if one.server_session_id and project_of.get(one.server_session_id) != one.project_id:
            raise _missing("There is no such session in this project.", one, "sessionId")


def _missing(message: str, one: Manual, field: str) -> NotFound:
    """In a batch it says where; of one by itself the sentence is enough, and not every door calls the field so."""
    return NotFound(message, [] if one.at == "$" else [Issue(f"{one.at}.{field}", message)])


def _new(one: Manual, origin: Origin) -> NewObservation:
    content = one.content or ""
    return NewObservation(
        id=new_id(),
        number=0,
        server_session_id=one.server_session_id,
        kind="manual",
        type=one.type,
        origin=origin,
        scope=one.scope,
        title=one.title,
        subtitle=one.subtitle,
        narrative=one.narrative,
        facts=one.facts or None,
        concepts=one.concepts or None,
        files_read=one.files_read or None,
        files_modified=one.files_modified or None,
        summary=None,
        prompt_number=None,
        content=content,
        read_tokens=estimate_tokens(content),
        discovery_tokens=0,
        generation_key=None,
        metadata=one.metadata,
        created_by_job_id=None,
        created_at=one.created_at,
    )


def _too_many_words() -> NoReturn:
    raise Invalid("The texts have more different words than the search index takes. Send less at once.") from None
