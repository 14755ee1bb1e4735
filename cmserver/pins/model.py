"""A pin, and what a check says of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, LiteralString
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.db import READS_ALL_WORDS
from cmserver.base.text import Text

OnBreak = Literal["report", "refuse"]
"""Whether what would break a pin goes on and says so, or does not."""

PinWord = Annotated[Text, Meta(min_length=1, max_length=200)]
PinWords = Annotated[list[PinWord], Meta(max_length=20)]
PinLines = Annotated[int, Meta(ge=1, le=20)]

MAX_PINS = 2_000
"""Of a team."""

MAX_OF_QUESTION = 20
"""Of a project: each is compared with the others for what contradicts it."""

HOLDS: LiteralString = f"CASE WHEN {READS_ALL_WORDS} THEN p.holds END"
"""A check goes by all words of the team, so who may not read them all is not told what it said."""

PIN_COLUMNS: LiteralString = f"""p.id, p.team_id, p.number, p.question, p.must, p.must_not, p.lines, p.on_break, p.from_file,
    {HOLDS} AS holds, p.checked_at, p.created_at, p.updated_at,
    coalesce((SELECT j.joined_to FROM projects j WHERE j.id = p.project_id AND j.team_id = p.team_id),
             p.project_id) AS project_id"""  # noqa: S608 - one of our texts


class NewPin(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks of the memory: in the first `lines` hits of a search for the question come all words of `must`, and none
    of `must_not`.
    """

    question: str
    must: Sequence[str] = ()
    must_not: Sequence[str] = ()
    lines: int = 5
    on_break: OnBreak = "report"


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A pin as stored. The team's: anybody with a key for its project may change it."""

    id: UUID
    team_id: UUID
    project_id: UUID
    """That which is asked: of a joined project the one that has its memory."""
    number: int
    question: str
    must: list[str]
    must_not: list[str]
    lines: int
    on_break: OnBreak
    from_file: bool
    holds: bool | None
    """What its last check said; None for who may not read all words of the team."""
    checked_at: datetime
    created_at: datetime
    updated_at: datetime


class PinResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. `hits` are the numbers of the first hits; `missing` and `unwanted` are why it does not hold."""

    pin: Pin
    hits: list[int]
    missing: list[str]
    unwanted: list[str]

    @property
    def holds(self) -> bool:
        return not self.missing and not self.unwanted

    @property
    def is_lost(self) -> bool:
        """Whether it held at its last check, and does not any more."""
        return self.pin.holds is True and not self.holds

    @property
    def reason(self) -> str:
        """Why it does not hold; empty where it does."""
        parts = [f"{word!r} does not come" for word in self.missing] + [f"{word!r} comes" for word in self.unwanted]
        return "" if not parts else f"{' and '.join(parts)} in the first {self.pin.lines} lines"
