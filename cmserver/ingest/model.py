"""What comes in at the doors, before and after it is made safe to store."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.access.model import Project
from cmserver.events.model import Event, Origin
from cmserver.generation.model import Job

PROMPT_TYPES = frozenset({"user_prompt", "UserPromptSubmit"})
"""Event types that are a user's prompt: they become numbered rows and no job."""


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """When a turn's end is worth a summary: after so many new events, or so long after the last one."""

    events: int
    minutes: float


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One event as a door hands it over. The session is named by our id, or by the agent's (then found or made)."""

    project: Project
    event_type: str
    payload: object
    occurred_at: datetime
    source_adapter: str
    origin: Origin
    generate: bool = True
    source_event_id: str | None = None
    server_session_id: UUID | None = None
    content_session_id: str | None = None
    platform_source: str | None = None
    metadata: dict[str, object] = {}
    size_bytes: int = 0
    """About how large it is as JSON; a part of a small body may be 0."""
    at: str = "$"
    """Where the event stands in the body, for the paths of what is wrong with it."""


class Safe(msgspec.Struct, frozen=True, kw_only=True):
    """What of an event is fit to be stored, and the hash of what was sent."""

    payload: object
    metadata: dict[str, object]
    said: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An event made safe, with the job that belongs to it: what the ingest statement takes."""

    id: UUID
    job_id: UUID
    lane: UUID
    project_id: UUID
    server_session_id: UUID | None
    source_adapter: str
    source_event_id: str | None
    idempotency_key: str
    job_key: str
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
    delay_seconds: float = 0
    """When its lane is due, at the latest."""
    at_most: int | None = None
    """How many events one provider call of its lane may serve; None for as many as the settings allow."""
    waits_for_end: bool = False


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A row that the statement stored: not one that was there before."""

    id: UUID
    received_at: datetime


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is in the database, with its job; `is_new` is False when the same event had come before."""

    event: Event
    job: Job | None
    is_new: bool
