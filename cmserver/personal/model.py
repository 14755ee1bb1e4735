"""Personal observations, and what a person may change of them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec

_NUMBER = re.compile(r"#?[Mm]([0-9]{1,18})")

PersonalType = Literal["note", "rule"]
PersonalState = Literal["holds", "dropped", "moved"]


def parse_personal_name(name: str) -> int | None:
    """The number in `m12` or `#m12`; None for what names nothing personal."""
    found = _NUMBER.fullmatch(name)
    return int(found[1]) if found else None


class FormerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the last change of a personal observation changed, as it was.

    `taken` is the team's observation that it was taken from. `earlier` is what can be undone next, once this is: what made it no
    longer hold, or that it was taken.
    """

    state: PersonalState = "holds"
    type: PersonalType | None = None
    content: str | None = None
    observation_number: int | None = None
    taken: int | None = None
    earlier: FormerState | None = None


class SourceTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn whose words it is, with which it goes."""

    turn_id: UUID
    project_id: UUID
    said_at: datetime


class PersonalObservation(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants remembered for themselves, numbered for them in the team."""

    id: UUID
    team_id: UUID
    user_id: UUID
    number: int
    type: PersonalType
    content: str
    state: PersonalState
    before: FormerState | None
    """None where nothing can be undone."""
    project_id: UUID | None
    turn_id: UUID | None
    """The turn that it was drawn from; None for what was told or edited by hand."""
    turn_number: int | None
    observation_number: int | None
    """The team's observation that it was moved to."""
    actor_id: str
    created_at: datetime
    updated_at: datetime

    @property
    def name(self) -> str:
        """How it is named: `m12`."""
        return f"m{self.number}"


PERSONAL_COLUMNS: LiteralString = (
    "p.id, p.team_id, p.user_id, p.number, p.type, p.content, p.state, p.before, p.project_id, p.turn_id,"
    " (SELECT t.number FROM turns t WHERE t.id = p.turn_id AND t.team_id = p.team_id) AS turn_number,"
    " p.observation_number, p.actor_id, p.created_at, p.updated_at"
)
"""Of a table that is called `p`."""


class WordsOwner(SourceTurn, frozen=True, kw_only=True):
    """Whose words the prompt of a job is."""

    job_id: UUID
    user_id: UUID
    actor_id: str
