"""Writes, corrects and deletes observations by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NoReturn
from uuid import UUID

import msgspec
from msgspec import UNSET
from psycopg import errors

from cmserver.access import announce, audit
from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import NO_SUCH as NO_SUCH_PROJECT
from cmserver.access.projects import Projects
from cmserver.base import erasure_journal
from cmserver.base.errors import Conflict, Forbidden, Invalid, Issue, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.events.model import Origin
from cmserver.observations import model, repository
from cmserver.observations.approval import repository as approvals
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import SYSTEM, Change, Measure
from cmserver.observations.lifetime import repository as lifetime
from cmserver.observations.lifetime.extend import record_promotion
from cmserver.observations.read import NO_SUCH, find_observation
from cmserver.observations.tidy import tidy_observation
from cmserver.observations.wire import ObservationIn, read_lifetime
from cmserver.sessions import repository as sessions

_NOT_FOR_TEAM = "This key is bound to one project and may not write what the whole team shares. Use a key without a project."


async def clean_observation(
    projects: Projects, principal: Principal, observation: ObservationIn, at: str, size_bytes: int
) -> model.ManualObservation:
    """The observation fit to be stored, in a project that the key sees. Errors have the path `at`."""
    try:
        project = await projects.named_or_own(principal, observation.project_id, at=f"{at}.projectId")
    except NotFound as error:
        raise NotFound(str(error), [] if at == "$" else [Issue(f"{at}.projectId", str(error))]) from error
    draft = reshape(
        observation,
        model.ManualObservation,
        project_id=project.id,
        server_session_id=observation.session_id,
        ttl_seconds=read_lifetime(observation, at),
        at=at,
    )
    return await tidy_observation(draft, size_bytes=size_bytes)


async def write(
    conn: Conn,
    principal: Principal,
    observations: Sequence[model.ManualObservation],
    *,
    origin: Origin = "api",
    for_all: bool = False,
) -> list[model.Observation]:
    """Store all of these tidy observations or none; returns them as stored, in the same order. Among them are
    rules that wait for a person's yes, and are not shown. `for_all`: whoever reads others' words, these are the team's.
    """
    if principal.project_id is not None and any(observation.scope == "team" for observation in observations):
        raise Forbidden(_NOT_FOR_TEAM)
    await _check_times(conn, observations)
    await _check_projects_and_sessions(conn, principal, observations)
    new = [_new_observation(principal, observation, origin, for_all=for_all) for observation in observations]
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
    await announce.notify_stream(conn)
    stored = {row.id: row for row in await repository.by_ids(conn, principal.team_id, [row.id for row in new])}
    rules = [row.id for row in new if row.type == "decision"]
    held = await approvals.hold(conn, principal.team_id, rules, by_nobody=not principal.is_person) if rules else []
    stored |= {row.id: row for row in held}
    return [stored[row.id] for row in new]


async def write_summary(
    conn: Conn, principal: Principal, project_id: UUID, session_id: UUID | None, content: str, *, origin: Origin = "api"
) -> model.Observation:
    """Store a clean summary that somebody wrote, of the session or else of the project."""
    row = model.NewObservation(
        id=new_id(),
        server_session_id=session_id,
        kind="summary",
        type="change",
        origin=origin,
        actor_id=principal.actor_id,
        person_id=principal.user_id,
        content=content,
        read_tokens=model.estimate_tokens(content),
    )
    ids = [str(row.id)]
    await audit.record(conn, principal, "observations.created", "project", project_id, project_id=project_id, observations=ids)
    (number,) = await repository.take_numbers(conn, principal.team_id, 1)
    try:
        await repository.insert(conn, principal.team_id, project_id, [msgspec.structs.replace(row, number=number)])
    except errors.ProgramLimitExceeded:
        _too_many_words()
    await announce.notify_stream(conn)
    (stored,) = await repository.by_ids(conn, principal.team_id, [row.id])
    return stored


async def _begins_to_matter(conn: Conn, old: model.Observation, new: model.Observation) -> bool:
    """Whether its importance is raised to that of what does not expire."""
    if old.importance >= new.importance:
        return False
    policy = await access.retention_of(conn, new.team_id, new.project_id)
    least = model.PROMOTE_IMPORTANCE if policy.promote_importance is None else policy.promote_importance
    return old.importance < least <= new.importance


async def correct(
    conn: Conn, principal: Principal, name: str, correction: model.Correction, *, measured_by: Measure | None = None
) -> model.Observation:
    """Change the fields that are set in the correction; returns the stored observation. Its former state becomes a version.

    `measured_by` is of a change that nobody asked for: by what it was found.
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
    new = _apply(old, correction)
    if new.state is None and set(correction.fields) - {"concepts"}:
        await refuse_rule(conn, principal, new)
    await _check_current(conn, old, new)
    try:
        corrected = await repository.correct(conn, principal.team_id, new)
    except errors.UniqueViolation as error:
        raise Conflict("Somebody else has just said what is current on this matter. Look again.") from error
    except errors.ProgramLimitExceeded:
        _too_many_words()
    change = Change(action="corrected", performed_by=principal.actor_id, measured_by=measured_by)
    await history.add(conn, old, corrected, change)
    expires = correction.ttl_seconds is UNSET and corrected.ttl_seconds is not None
    if expires and await _begins_to_matter(conn, old, corrected):
        corrected = await _make_permanent(conn, principal, corrected, performed_by=SYSTEM)
    await audit.record(
        conn, principal, "observation.corrected", "observation", old.id, project_id=old.project_id, fields=correction.fields
    )
    await announce.notify_stream(conn)
    return corrected


async def refuse_rule(conn: Conn, principal: Principal, rule: model.Observation) -> None:
    """Raise Forbidden where a program changes what a rule says, in a team in which a person decides what counts."""
    if rule.type != "decision" or principal.is_person or principal.kind == "steward":
        return
    if await approvals.is_asking(conn, principal.team_id):
        raise Forbidden("In this team a rule counts only after a person's yes. Add it as a new one, which then waits for that.")


async def _check_current(conn: Conn, old: model.Observation, new: model.Observation) -> None:
    """Raise Conflict where another one is the current word on its matter."""
    matter = new.metadata.get(model.CURRENT_ON)
    if not isinstance(matter, str) or new.state == "dropped":
        return
    await repository.end_expired_word(conn, old.team_id, old.project_id, matter)
    holder = await repository.current_on(conn, old.team_id, old.project_id, matter)
    if holder not in {None, old.number}:
        raise Conflict(
            f"#{holder} is the current word on {matter!r}. Where this one replaces it, merge that into it "
            f"(`cmserver merge {old.number} {holder} --strategy latest_wins`); else drop that one, or take the matter from it."
        )


async def promote(conn: Conn, principal: Principal, name: str) -> model.Observation:
    """Make the observation permanent, also an expired one; one that is permanent stays so. Gone for one that was merged."""
    old = await _lock_writable(conn, principal, name, also_expired=True)
    if old.ttl_seconds is None:
        return old
    promoted = await _make_permanent(conn, principal, old, performed_by=principal.actor_id)
    await announce.notify_stream(conn)
    return promoted


async def expire(conn: Conn, principal: Principal, name: str, *, is_taken: bool = False) -> model.Observation:
    """End the observation's time now: it is shown no longer, and is purged as others that have expired. Undoing brings it back.

    What `is_taken` by its person is told of no other time either, and in no receipt.
    """
    old = await _lock_writable(conn, principal, name)
    expired = await lifetime.expire(conn, principal.team_id, old.id, is_taken=is_taken)
    await audit.record(conn, principal, "observation.expired", "observation", old.id, project_id=old.project_id, number=old.number)
    await announce.notify_stream(conn)
    return expired


async def _make_permanent(conn: Conn, principal: Principal, old: model.Observation, *, performed_by: str) -> model.Observation:
    promoted = await lifetime.promote(conn, principal.team_id, old.id)
    await record_promotion(conn, principal, old, promoted, performed_by=performed_by)
    return promoted


def _apply(old: model.Observation, correction: model.Correction) -> model.Observation:
    """The corrected observation. A content that only repeats the other texts is composed of them again."""
    new = msgspec.structs.replace(old, **{name: getattr(correction, name) for name in correction.fields if name != "current_on"})
    if "metadata" in correction.fields and model.CURRENT_ON in old.metadata:
        new = msgspec.structs.replace(new, metadata=new.metadata | {model.CURRENT_ON: old.metadata[model.CURRENT_ON]})
    if correction.current_on is not UNSET:
        others = {name: value for name, value in new.metadata.items() if name != model.CURRENT_ON}
        new = msgspec.structs.replace(
            new, metadata=others | ({model.CURRENT_ON: correction.current_on} if correction.current_on else {})
        )
    if "content" in correction.fields:
        if "narrative" not in correction.fields and old.narrative == old.content:
            new = msgspec.structs.replace(new, narrative=new.content)  # search reads the narrative where there is a title
    elif old.content == model.compose(old.title, old.subtitle, old.narrative, old.facts) and (
        old.title is not None or not {"subtitle", "narrative", "facts"}.isdisjoint(correction.fields)
    ):
        new = msgspec.structs.replace(new, content=model.compose(new.title, new.subtitle, new.narrative, new.facts))
    if not new.content:
        message = "No text would be left"
        raise Invalid(f"{message}: correct it, or delete the observation.", [Issue(f"$.{correction.fields[0]}", message)])
    if not {"title", "subtitle", "narrative", "facts", "content"}.isdisjoint(correction.fields):
        new = msgspec.structs.replace(new, stale=None)  # whoever words it anew says what holds
    if correction.ttl_seconds is not UNSET:
        expires_at = datetime.now(UTC) + timedelta(seconds=new.ttl_seconds) if new.ttl_seconds else None
        new = msgspec.structs.replace(new, expires_at=expires_at)
    if new.state != old.state:
        closed_at = datetime.now(UTC) if new.state in {"done", "dropped"} else None
        new = msgspec.structs.replace(new, closed_by=None, closed_at=closed_at)
    return new if new.content == old.content else msgspec.structs.replace(new, read_tokens=model.estimate_tokens(new.content))


async def delete(conn: Conn, principal: Principal, name: str) -> UUID:
    """Delete the observation, what was merged into it, and its source links, not its events; returns its id.

    Gone for one that was itself merged: its text is in the other, so that one is deleted, or the merge undone before.
    """
    old = await _lock_writable(conn, principal, name)
    await delete_found(conn, principal, old)
    return old.id


async def delete_found(conn: Conn, principal: Principal, observation: model.Observation) -> None:
    """Delete the observation and what was merged into it, and what was derived from them; audit log and journal name all of them.

    Conflict when something that was derived was merged into another one, which holds its texts.
    """
    team_id = principal.team_id
    merged_ids = await repository.merged_into(conn, team_id, observation.id)
    if holders := await repository.holders_of_derived(conn, team_id, [observation.id, *merged_ids]):
        numbers = ", ".join(f"#{number}" for number in holders)
        raise Conflict(f"What was derived from it was merged into {numbers}. Undo that merge first.")
    for merged_id in merged_ids:
        erasure_journal.note(conn, "observation.deleted", team_id, str(merged_id))
    derived = await repository.derived_from(conn, team_id, [observation.id, *merged_ids])
    await repository.delete(conn, team_id, observation.id)
    await record_deleted(conn, principal, [observation, *derived])


async def record_deleted(conn: Conn, principal: Principal, deleted: Iterable[model.Observation | model.DerivedObservation]) -> None:
    """Name the deleted observations in the audit log, and so to the live stream and in the journal of erasures."""
    for row in deleted:
        await audit.record(
            conn, principal, "observation.deleted", "observation", row.id, project_id=row.project_id, number=row.number
        )
    await announce.notify_stream(conn)


async def _lock_writable(conn: Conn, principal: Principal, name: str, *, also_expired: bool = False) -> model.Observation:
    """The observation, locked. Forbidden where the key is bound to another project."""
    observation = await find_observation(conn, principal, name, also_expired=also_expired)
    if not principal.sees(observation.project_id):
        raise Forbidden("This observation is shared by another project. A key that is bound to a project may only read it.")
    locked = await repository.lock(conn, principal.team_id, observation.id)
    if locked is None:
        raise NotFound(NO_SUCH)
    # It may have been merged into another while its lock was waited for.
    await find_observation(conn, principal, str(locked.id), also_expired=also_expired)
    return locked


async def _check_times(conn: Conn, observations: Sequence[model.ManualObservation]) -> None:
    """Raise Invalid, with the path, for an observation that is dated in the future."""
    times = {observation.created_at for observation in observations if observation.created_at}
    future_times = await repository.in_future(conn, times) if times else set[datetime]()
    for observation in observations:
        if observation.created_at in future_times:
            message = "createdAtEpoch is in the future: send when it was written down, in milliseconds"
            raise Invalid(f"{message} (at {observation.at}).", [Issue(f"{observation.at}.createdAtEpoch", message)])


async def _check_projects_and_sessions(conn: Conn, principal: Principal, observations: Sequence[model.ManualObservation]) -> None:
    """Raise NotFound for a project that does not exist, or a session that is not of it. Locks the projects against deletion."""
    held = await repository.hold_projects(conn, principal.team_id, {observation.project_id for observation in observations})
    session_ids = {observation.server_session_id for observation in observations if observation.server_session_id}
    projects = await sessions.projects_of(conn, principal.team_id, session_ids) if session_ids else {}
    for observation in observations:
        if observation.project_id not in held:
            raise _not_found(NO_SUCH_PROJECT, observation, "project")
        if observation.server_session_id and projects.get(observation.server_session_id) != observation.project_id:
            raise _not_found("Session not found in this project.", observation, "sessionId")


def _not_found(message: str, observation: model.ManualObservation, field: str) -> NotFound:
    """The error, with the field's path where it is one of a batch. A single observation has another field name in some routes."""
    return NotFound(message, [] if observation.at == "$" else [Issue(f"{observation.at}.{field}", message)])


def _new_observation(
    principal: Principal, observation: model.ManualObservation, origin: Origin, *, for_all: bool
) -> model.NewObservation:
    """The row to insert, with a new id and its token estimate."""
    content = observation.content or ""
    return reshape(
        observation,
        model.NewObservation,
        id=new_id(),
        kind="manual",
        origin=origin,
        actor_id=principal.actor_id,
        person_id=None if for_all else principal.user_id,
        content=content,
        read_tokens=model.estimate_tokens(content),
    )


def _too_many_words() -> NoReturn:
    raise Invalid("Too many distinct words to index. Send shorter texts.") from None
