"""Keeps, changes and moves what is a person's alone. No audit row tells of it, since owners read those."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import msgspec

from cmserver.access.model import Principal, Project
from cmserver.base import erasure_journal, paging
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Invalid, Issue, NoPerson, NotFound
from cmserver.base.ids import named_id, new_id
from cmserver.base.sql import Conn
from cmserver.observations.model import (
    INSTRUCTION_IMPORTANCE,
    MIN_INSTRUCTION_IMPORTANCE,
    TEXT_MOST,
    Correction,
    ManualObservation,
    Observation,
    compose,
)
from cmserver.observations.read import find_observation
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.wire import ObservationIn
from cmserver.observations.write import expire, promote, write
from cmserver.personal import repository
from cmserver.personal.model import FormerState, PersonalObservation, PersonalState, PersonalType, SourceTurn, parse_personal_name

NO_SUCH = "There is no such observation of yours."
_TEXTS = ("title", "subtitle", "narrative", "content", "facts")
_FOUND = 3
"""Hits of one's own that a search shows behind the team's."""


def require_person(principal: Principal, at: str) -> UUID:
    """The person who asks; NoPerson, with the path `at`, for a key that is nobody's."""
    if principal.user_id is None:
        message = "This key belongs to no person, so nothing is personal to it"
        how = "Sign in to the web interface: make a key there for yourself, or bind this one to you on your profile page."
        raise NoPerson(f"{message}. {how}", [Issue(at, message)])
    return principal.user_id


async def clean_personal(given: ObservationIn, *, size_bytes: int) -> tuple[str, PersonalType]:
    """The text of what is to be remembered for a person, fit to be stored, and what it is. Invalid for fields without a meaning."""
    for field in msgspec.structs.fields(ObservationIn):
        if field.name not in {*_TEXTS, "type", "scope"} and getattr(given, field.name) not in (None, [], {}, field.default):
            raise Invalid.at(f"$.{field.encode_name}", f"With scope `user`, `{field.encode_name}` has no meaning. Leave it out.")
    texts = {name: value for name in _TEXTS if (value := getattr(given, name))}
    tidy = await tidy_correction(Correction(**texts), size_bytes=size_bytes)
    title, subtitle, narrative, content, facts = (getattr(tidy, name) or None for name in _TEXTS)
    whole = compose(title, subtitle, narrative or content, facts)
    return _require_text(whole, "$"), "rule" if given.type == "decision" else "note"


async def write_personal(
    db: Db, principal: Principal, given: ObservationIn, *, size_bytes: int
) -> tuple[PersonalObservation, bool]:
    """Keep what somebody writes for themselves by hand; returns it, and whether it is new."""
    user_id = require_person(principal, "$.scope")
    content, type_ = await clean_personal(given, size_bytes=size_bytes)
    return await db.in_tenant(
        principal.team_id,
        lambda conn: keep_personal(conn, principal.team_id, user_id, principal.actor_id, type_, content),
        person_id=user_id,
    )


async def clean_text(text: str, *, size_bytes: int) -> str:
    """The text as it may be stored; Invalid when nothing is left of it."""
    tidy = await tidy_correction(Correction(content=text), size_bytes=size_bytes)
    return _require_text(tidy.content or "", "$.content")


def _require_text(text: object, at: str) -> str:
    clean = str(text or "").strip()[:TEXT_MOST].rstrip()
    if not clean:
        raise Invalid.at(at, "No text: say what is to be remembered.")
    return clean


async def keep_personal(
    conn: Conn,
    team_id: UUID,
    user_id: UUID,
    actor_id: str,
    type_: PersonalType,
    content: str,
    *,
    drawn_from: SourceTurn | None = None,
    taken: int | None = None,
) -> tuple[PersonalObservation, bool]:
    """Keep a clean text for the person; returns it as it is stored, and whether it is new.

    What is there already holds again. What was told by hand goes with no turn, also when it is drawn or taken as well; what was
    only drawn goes with the last turn that said it. What was drawn is not brought back by its own turn, nor by an older one, once
    the person has changed it.
    """
    await repository.lock_numbers(conn, team_id, user_id)
    there = await repository.of_text(conn, team_id, user_id, content)
    if there is None:
        stored = await repository.insert(
            conn,
            id_=new_id(),
            team_id=team_id,
            user_id=user_id,
            number=await repository.take_number(conn, team_id, user_id),
            type_=type_,
            content=content,
            before=None if taken is None else FormerState(state="dropped", taken=taken),
            project_id=drawn_from.project_id if drawn_from else None,
            turn_id=drawn_from.turn_id if drawn_from else None,
            actor_id=actor_id,
        )
        return stored, True
    is_by_hand = there.state == "holds" and there.turn_id is None
    if drawn_from is not None and taken is None:
        is_known = is_by_hand or there.turn_id == drawn_from.turn_id
        if is_known if there.state == "holds" else drawn_from.said_at <= there.updated_at:
            return there, False
    source = None if is_by_hand else drawn_from
    before = there.before if there.state == "holds" and taken is None else _before(there, taken=taken)
    again = msgspec.structs.replace(
        there,
        state="holds",
        before=before,
        observation_number=None,
        project_id=source.project_id if source else None,
        turn_id=source.turn_id if source else None,
    )
    return await repository.update(conn, again), False


def _before(
    there: PersonalObservation, *, taken: int | None = None, type_: PersonalType | None = None, content: str | None = None
) -> FormerState:
    """What is needed to undo a change of it, and then what made it no longer hold, or that it was taken from the team."""
    earlier = _find_take(there.before)
    if there.before is not None and there.state != "holds":
        earlier = msgspec.structs.replace(there.before, earlier=_find_take(there.before.earlier))
    return FormerState(
        state=there.state,
        type=type_,
        content=content,
        observation_number=there.observation_number,
        taken=taken,
        earlier=earlier,
    )


def _find_take(before: FormerState | None) -> FormerState | None:
    """The change, of this one and those before it, that took it from the team."""
    while before is not None and before.taken is None:
        before = before.earlier
    return before


async def list_personal(
    conn: Conn,
    principal: Principal,
    *,
    state: PersonalState,
    type_: PersonalType | None = None,
    words: str | None = None,
    limit: int,
    cursor: str | None = None,
) -> tuple[list[PersonalObservation], str | None]:
    """A page of the caller's own, newest first, and the cursor of the next page; with `words` the best of them, on one page."""
    user_id = require_person(principal, "$")
    if words is not None:
        found = await repository.by_words(conn, principal.team_id, user_id, words, state=state, type_=type_, limit=limit)
        return principal.named(found), None
    before, before_id = paging.place(cursor)
    rows = await repository.newest(
        conn,
        principal.team_id,
        user_id,
        state=state,
        type_=type_,
        before=before,
        before_id=before_id,
        limit=limit + 1,
    )
    return paging.page(principal.named(rows), limit, lambda row: (row.created_at, row.id))


async def read_personal(conn: Conn, principal: Principal, name: str) -> PersonalObservation:
    """The caller's observation of that number (`m12`, `#m12`) or id."""
    user_id = require_person(principal, "$.id")
    number, id_ = parse_personal_name(name), named_id(name)
    row = None
    if number is not None or id_ is not None:
        row = await repository.find(conn, principal.team_id, user_id, number=number, id_=id_)
    if row is None:
        raise NotFound(NO_SUCH)
    return principal.named([row])[0]


async def read_personal_batch(conn: Conn, principal: Principal, numbers: Sequence[int]) -> list[PersonalObservation]:
    """Those of the caller's own that have these numbers, in their order; none for a key that is nobody's."""
    if principal.user_id is None:
        return []
    rows = [
        await repository.find(conn, principal.team_id, principal.user_id, number=number, id_=None)
        for number in dict.fromkeys(numbers)
    ]
    return principal.named(row for row in rows if row is not None)


async def search_personal(conn: Conn, principal: Principal, words: str) -> list[PersonalObservation]:
    """Up to three of the caller's own that have most of the words; none for a key that is nobody's."""
    if principal.user_id is None:
        return []
    return principal.named(
        await repository.by_words(conn, principal.team_id, principal.user_id, words, state="holds", limit=_FOUND)
    )


async def _lock(conn: Conn, principal: Principal, name: str) -> PersonalObservation:
    """The caller's observation, which nobody changes until the transaction ends."""
    await repository.lock_numbers(conn, principal.team_id, require_person(principal, "$.id"))
    return await read_personal(conn, principal, name)


async def edit_personal(
    conn: Conn, principal: Principal, name: str, *, content: str | None, type_: PersonalType | None
) -> PersonalObservation:
    """Change its text or what it is. Another text is the person's own: it does not go with the turn that the first was drawn from.

    The words of a turn are not kept as what they were before, since they go with their turn: that change is not undone, only that
    it was taken from the team.
    """
    old = await _lock(conn, principal, name)
    _require_held(old)
    if content in (None, old.content) and type_ in (None, old.type):
        return old
    is_new_text = content is not None and content != old.content
    if is_new_text and await repository.of_text(conn, old.team_id, old.user_id, content or "") is not None:
        raise Conflict("You have another one with this text.")
    is_turns = is_new_text and old.turn_id is not None
    before = _find_take(old.before) if is_turns else _before(old, type_=old.type, content=old.content if is_new_text else None)
    changed = msgspec.structs.replace(
        old,
        type=type_ or old.type,
        content=content or old.content,
        before=before,
        turn_id=None if is_new_text else old.turn_id,
        project_id=None if is_new_text else old.project_id,
    )
    return await repository.update(conn, changed)


async def forget_personal(conn: Conn, principal: Principal, name: str) -> tuple[PersonalObservation, bool]:
    """Drop it, which can be undone; one that was dropped before is deleted for ever. Returns it, and whether it is deleted."""
    old = await _lock(conn, principal, name)
    if old.state == "dropped":
        await repository.delete(conn, old.team_id, old.id, user_id=old.user_id)
        erasure_journal.note(conn, "personal.deleted", old.team_id, str(old.id))
        return old, True
    return await repository.update(conn, msgspec.structs.replace(old, state="dropped", before=_before(old))), False


async def undo_personal(conn: Conn, principal: Principal, name: str) -> PersonalObservation:
    """Undo its last change; what was said or changed after a move or a take leaves that to be undone next.

    The team's observation that it was moved to ends then, or the one that it was taken from is back.
    """
    old = await _lock(conn, principal, name)
    before = old.before
    if before is None:
        raise Conflict("There is nothing to undo: it has not been changed, or its former words go with the turn that said them.")
    if old.state == "moved" and before.state != "moved" and old.observation_number is not None:
        with suppress(NotFound):  # gone by itself
            await expire(conn, principal, str(old.observation_number), is_taken=True)
    if before.taken is not None:
        await promote(conn, principal, str(before.taken))
    undone = msgspec.structs.replace(
        old,
        state=before.state,
        type=before.type or old.type,
        content=before.content or old.content,
        observation_number=before.observation_number,
        before=before.earlier,
    )
    return await repository.update(conn, undone)


async def give_to_team(conn: Conn, principal: Principal, name: str, project: Project) -> tuple[PersonalObservation, Observation]:
    """Make it an observation of the project, which the team reads; what was drawn from a turn still goes with its session."""
    old = await _lock(conn, principal, name)
    _require_held(old)
    session_id = None
    if old.turn_id is not None and old.project_id == project.id:
        session_id = await repository.session_of_turn(conn, old.team_id, old.turn_id)
    elif old.turn_id is not None:
        raise Conflict(
            "It was drawn from a turn of another project, with which it goes: move it to that project, or edit it first."
        )
    is_rule = old.type == "rule"
    new = ManualObservation(
        project_id=project.id,
        server_session_id=session_id,
        type="decision" if is_rule else "discovery",
        narrative=old.content,
        content=old.content,
        importance=INSTRUCTION_IMPORTANCE if is_rule else 0.5,
        at="$",
    )
    (stored,) = await write(conn, principal, [new], for_all=True)
    changed = msgspec.structs.replace(old, state="moved", observation_number=stored.number, before=_before(old))
    return await repository.update(conn, changed), stored


def can_be_taken(observation: Observation) -> bool:
    """Whether somebody may have said it: it was written by hand, or drawn from a turn."""
    return observation.kind == "manual" or (observation.kind != "summary" and observation.turn_number is not None)


async def take_from_team(conn: Conn, principal: Principal, name: str) -> tuple[PersonalObservation, bool]:
    """Make an observation of the team the caller's own; the team is shown it no longer. Returns it, and whether it is new."""
    user_id = require_person(principal, "$.id")
    observation = await find_observation(conn, principal, name)
    turn = None
    if observation.turn_number is not None:
        turn = await repository.turn_of_number(conn, principal.team_id, observation.turn_number)
    if not can_be_taken(observation) or (observation.kind != "manual" and turn is None):
        raise Conflict("Only what was written by hand or drawn from a turn can be taken: this is of the project as a whole.")
    is_rule = observation.type == "decision" and observation.importance > MIN_INSTRUCTION_IMPORTANCE
    kept, is_new = await keep_personal(
        conn,
        principal.team_id,
        user_id,
        principal.actor_id,
        "rule" if is_rule else "note",
        observation.content[:TEXT_MOST],
        drawn_from=None if observation.kind == "manual" else turn,
        taken=observation.number,
    )
    await expire(conn, principal, str(observation.id), is_taken=True)
    return kept, is_new


def _require_held(row: PersonalObservation) -> None:
    if row.state != "holds":
        was = "forgotten" if row.state == "dropped" else f"moved to the team, as #{row.observation_number}"
        raise Conflict(f"It was {was}. Undo that first.")
