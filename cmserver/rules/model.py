"""What the rules know of a session besides the events of a batch."""

from __future__ import annotations

import msgspec

from cmserver.providers.model import PriorObservation


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
