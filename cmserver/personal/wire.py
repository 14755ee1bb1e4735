"""Personal observations on the wire."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.columns import Columns
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key, QueryText
from cmserver.observations.plain import one_line
from cmserver.observations.wire import Words
from cmserver.personal.model import PersonalObservation, PersonalState, PersonalType

LINE_CHARS = 160


class PersonalObservationsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`state` is which to list: those that hold, without it, those that were dropped, or those that were moved to the team.

    `type` is which to list: notes or rules; without it both. `query` is words of which at least half must be there: then the best
    are first, on one page, without a cursor.
    """

    state: PersonalState = "holds"
    type: PersonalType | None = None
    query: QueryText | None = None
    limit: Limit = 50
    cursor: str | None = None


class PersonalEditIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is not sent stays as it is. `content` is the whole text; `type` is whether it is a note, or a rule for agents."""

    id: Key
    content: Annotated[Words, Meta(min_length=1)] | None = None
    type: PersonalType | None = None


class MoveIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`projectId` is the project that gets it; without it that of the turn that it was drawn from, else that
    of the key.
    """

    id: Key
    project_id: Key | None = None


class PersonalObservationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What is the caller's alone. `name` is how it is named, `m12`; `number` is that number, counted for each person in a team.

    `type` is whether it is a note, or a rule for agents. `state` is whether it holds, was dropped, or was moved to the team.
    `canUndo` is whether its last change can be undone. `turnNumber` is the turn whose words it is, with which it goes, or null for
    what was told by hand. `observationNumber` is the team's observation that it was moved to, or null. `actorId` is by whose key it
    came.
    """

    id: UUID
    name: str
    number: int
    type: PersonalType
    state: PersonalState
    content: str
    can_undo: bool
    turn_number: int | None
    observation_number: int | None
    actor_id: str
    created_at_epoch: int
    updated_at_epoch: int


class OnePersonalObservationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One personal observation."""

    personal: PersonalObservationOut


class PersonalObservationsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The caller's own, newest first."""

    personal: list[PersonalObservationOut]
    next_cursor: str | None


class PersonalDeletionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`deleted` is whether it is gone for ever, since it had been dropped before; else it can be undone."""

    name: str
    deleted: bool


def personal_out(row: PersonalObservation) -> PersonalObservationOut:
    return reshape(row, PersonalObservationOut, name=row.name, can_undo=row.before is not None)


def render_personal_line(row: PersonalObservationOut) -> str:
    """The name and the beginning of the text."""
    return f"{row.name} {sanitize_line(one_line(row.content, LINE_CHARS))}"


_FIELDS = Columns(
    PersonalObservationOut, "name, type, state, turn=turn_number, moved_to=observation_number, by=actor_id, created, updated"
)


def render_personal_whole(result: OnePersonalObservationOut) -> str:
    """It whole, for a terminal."""
    head = "\n".join(f"{name}: {value}" for name, value in _FIELDS.fields(result.personal) if value is not None)
    return f"{head}\n\n" + "\n".join(map(sanitize_line, result.personal.content.splitlines()))
