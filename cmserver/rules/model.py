"""What the rules know of a session besides the events of a batch, and what an event says that is no observation by itself."""

from __future__ import annotations

import msgspec

from cmserver.models.providers.model import PriorObservation
from cmserver.reading.model import OpenEnd, UserRule


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, recorded and said last."""

    requests: list[str] = []
    """What the user asked for in this session, oldest first; the last one is the present request."""
    recorded: list[PriorObservation] = []
    """What this session has recorded so far, oldest first."""
    open_ends: list[PriorObservation] = []
    """What is open in the project, of other sessions too, oldest first."""
    last_message: str | None = None
    """The agent's last words: before the first prompt of the events, or of the session (summaries)."""


class TurnEnd(msgspec.Struct, frozen=True):
    """The agent's last message of a turn, and what it leaves open."""

    message: str
    open_ends: list[OpenEnd]


class TodoList(msgspec.Struct, frozen=True):
    """The agent's own list of what it has to do, as it is now."""

    unfinished: list[str]
    finished: list[str]


class LaidDown(msgspec.Struct, frozen=True):
    """What the user laid down for good in a prompt, in their own words."""

    rules: list[UserRule]
