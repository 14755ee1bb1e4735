"""What a timeline is made of: prompts, observations and summaries, in the order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation
from cmserver.sessions.model import ListedPrompt

MAX_ENTRIES = 50
"""On either side."""
PROMPT_CHARS = 300
"""How much of a prompt is shown in an index."""

TimelineKind = Literal["prompt", "observation", "summary"]
ALL_KINDS: frozenset[TimelineKind] = frozenset({"prompt", "observation", "summary"})


class TimedPrompt(ListedPrompt, frozen=True, kw_only=True):
    """A prompt of which `text` may be the beginning only; `chars` is how long the whole of it is."""

    chars: int

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
    event_id: UUID
    """Stands for the ids of prompts, which are those of their events."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, oldest first. `anchor` is one of them, or None for a mere moment. `project_names` are given for several."""

    at: datetime
    anchor: Observation | TimedPrompt | None
    entries: Sequence[Observation | TimedPrompt]
    project_names: Mapping[UUID, str] = {}
