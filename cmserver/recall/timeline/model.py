"""What a timeline is made of: turns, observations and summaries, in the order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation
from cmserver.sessions.turns.model import join_sides

MAX_ENTRIES = 50
"""On either side."""
PROMPT_CHARS = 300
"""How much of a prompt, and of a reply, is shown in an index."""

TimelineKind = Literal["turn", "prompt", "observation", "summary"]
"""`prompt` is what turns were called before."""
ALL_KINDS: frozenset[TimelineKind] = frozenset({"turn", "observation", "summary"})


class TimedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of which `prompt` and `reply` may be the beginnings only; `chars` is how long the whole of it is."""

    id: UUID
    number: int
    event_id: UUID | None
    project_id: UUID
    server_session_id: UUID
    prompt_number: int | None
    prompt: str
    reply: str | None
    agent_id: str | None
    """The sub-agent whose turn it is."""
    created_at: datetime
    chars: int

    @property
    def line(self) -> str:
        """What was said on both sides, for a list."""
        return join_sides(self.prompt, self.reply)

    @property
    def cost(self) -> int:
        """The tokens that reading the whole entry takes; see estimate_tokens."""
        return (self.chars + 3) // 4


class TimelineRange(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries on either side, of which kinds, of which session only, and how much of each prompt."""

    before: int
    after: int
    kinds: frozenset[TimelineKind] = ALL_KINDS
    session_id: UUID | None = None
    prompt_chars: int = PROMPT_CHARS


class TimelinePosition(msgspec.Struct, frozen=True, kw_only=True):
    """A position between entries: those of the same moment stand before or behind it by their ids."""

    at: datetime
    observation_id: UUID
    turn_id: UUID


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, oldest first. `anchor` is one of them, or None for a mere moment. `project_names` are given for several."""

    at: datetime
    anchor: Observation | TimedTurn | None
    entries: Sequence[Observation | TimedTurn]
    project_names: Mapping[UUID, str] = {}
