"""What a timeline is made of: prompts, observations and summaries, in the order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation
from cmserver.sessions.model import ListedPrompt

MOST = 50
"""How many are told on either side at most."""
PROMPT_CHARS = 300
"""As much of a prompt is told where the whole of it is not asked for."""

What = Literal["prompt", "observation", "summary"]
EVERYTHING: frozenset[What] = frozenset({"prompt", "observation", "summary"})


class TimedPrompt(ListedPrompt, frozen=True, kw_only=True):
    """A prompt of which `text` may be the beginning only; `chars` is how long the whole of it is."""

    chars: int

    @property
    def cost(self) -> int:
        """How many tokens reading the whole of it takes; see estimate_tokens."""
        return (self.chars + 3) // 4


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: how many on either side, of what, of which session only, and how much of each prompt."""

    before: int
    after: int
    what: frozenset[What] = EVERYTHING
    session_id: UUID | None = None
    prompt_chars: int = PROMPT_CHARS


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place between things: those of the same moment stand before or behind it by their ids."""

    at: datetime
    observation_id: UUID
    event_id: UUID
    """Of a prompt."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest first. `anchor` stands among the others, unless it is a mere moment. `names` are those of the projects, where they are
    several.
    """

    at: datetime
    anchor: Observation | TimedPrompt | None
    told: Sequence[Observation | TimedPrompt]
    names: Mapping[UUID, str] = {}
