"""Events on their way into the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.access.model import Project
from cmserver.events.model import Origin, StoredEvent
from cmserver.generation.model import Job
from cmserver.tooluse.model import ToolUse


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn gets a summary after `events` new events, or `minutes` after the last summary."""

    events: int
    minutes: float


MOMENT = timedelta(seconds=2)
"""The same content within this time is one event, where nothing else tells events apart: a hook may run twice."""

EventIdentity = Literal["id", "turn", "moment"]
"""By what an event is known when it comes again: by the source's id for it, or else by its content and its exact time; by the id
of its turn and its content; or by its content and about its time."""


class EventSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a door passes it on. Its session has our id, or its id at the agent, by which it is found or made."""

    event_type: str
    source_adapter: str = "api"
    payload: object
    metadata: dict[str, object] = {}
    platform_source: str | None = None
    source_event_id: str | None = None
    server_session_id: UUID | None = None
    content_session_id: str | None = None
    project: Project
    origin: Origin
    generate: bool = True
    occurred_at: datetime
    identity: EventIdentity = "id"
    """By what it is known when it comes again."""
    turn_id: str | None = None
    """The agent's id for its turn, for the identity `turn`."""
    tool: ToolUse | None = None
    """The tool call that a hook brought."""
    is_recovered: bool = False
    """Whether it is a reply that comes from the agent's transcript."""
    session_metadata: dict[str, object] = {}
    """Clean metadata for the session, if this event makes it."""
    size_bytes: int = 0
    """Of the request that it came in."""
    at: str = "$"
    """The path of the event in the body, for errors."""


class SubagentWords(msgspec.Struct, frozen=True, kw_only=True):
    """What a sub-agent was asked, or what it said last."""

    agent_id: str
    prompt: str = ""
    reply: str | None = None


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A clean event with the job that belongs to it: what the ingest statement takes."""

    id: UUID
    job_id: UUID
    lane: UUID
    project_id: UUID
    server_session_id: UUID | None
    source_adapter: str
    source_event_id: str | None
    idempotency_key: str
    event_type: str
    platform_source: str | None
    origin: str
    generate: bool
    size_chars: int
    payload: msgspec.Raw
    metadata: dict[str, object]
    occurred_at: datetime
    place: int
    prompt: str | None
    """The user's words, when the event is a prompt of a session."""
    reply: str | None = None
    """The agent's last words of a turn, when the event ends one."""
    subagent: SubagentWords | None = None
    is_recovered: bool = False
    """Whether they come from the agent's transcript, with the time at which it said them."""
    delay_seconds: float = 0
    """When its lane is due, at the latest."""
    at_most: int | None = None
    """How many events one provider call of its lane may serve; None for as many as the settings allow."""
    waits_for_end: bool = False
    gather_seconds: float | None = None
    """How long it waits for the rest of its turn; None when it is not understood by turns."""
    near_keys: Sequence[str] = ()
    """Keys that the same content has a moment earlier or later: one that was stored within MOMENT of it is this event."""


class IngestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one request, and who sent them."""

    api_key_id: UUID | None
    actor_id: str
    request_id: str | None
    events: Sequence[NewEvent]


class StoredAt(msgspec.Struct, frozen=True, kw_only=True):
    """When a new event was stored; an event that was there before has none."""

    id: UUID
    received_at: datetime


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is in the database, with its job; `is_new` is False when the same event was there before."""

    event: StoredEvent
    job: Job | None
    is_new: bool
