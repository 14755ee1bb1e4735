"""A hook's call, understood: what all agents have in common once their own words are translated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from cmserver.recall.model import Start

Moment = Literal["start", "prompt", "file", "turn_end", "end", "other"]
"""When in a session it is called: at its start, at a prompt, when a file is read, at a turn's end, at the session's, or else."""


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be stored. `source_event_id` is the same whichever hook tells of it, and however often."""

    event_type: str
    payload: object
    source_event_id: str | None
    generate: bool
    metadata: dict[str, object] = {}


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a hook. `events` is empty when there is nothing to store."""

    name: str
    """The agent's own word for it."""
    session_id: str
    cwd: str | None
    moment: Moment
    events: list[HookEvent] = []
    source: Start = "startup"
    """At the start."""
    prompt: str | None = None
    """At a prompt."""
    file: str | None = None
    """When a file is read: its path as the agent names it."""
    is_subagent: bool = False
    """Whether an agent within the session calls, whose turns are not the session's."""
    metadata: dict[str, object] = {}
    """At the start: what is kept with the session."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent is told: context for the model, and a message that its user sees."""

    context: str | None = None
    message: str | None = None


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. `understand` takes the payload and the delivery id, and raises Invalid only for what is no hook's payload."""

    platform: str
    understand: Callable[[object, str | None], HookCall]
    output: Callable[[HookCall | None, Told], msgspec.Struct]
    """The answer in the agent's own schema; without a call when it could not be understood, or its key is wrong."""
