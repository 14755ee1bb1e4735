"""Raw events of coding agents, as they reported them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec

IS_WORK: LiteralString = "e.event_type NOT IN ('user_prompt', 'UserPromptSubmit', 'assistant_message')"
"""In SQL: the event `e` is neither a prompt nor a reply."""

Origin = Literal["hook", "api", "mcp", "import", "model"]
"""How an event or what somebody writes reached the server, which sets it. What is generated says `rules` or `model`."""


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing an agent reported: a tool use, a prompt, a message. Stored once by its idempotency key, redacted.

    Never changed, but for the payload, which retention may empty.
    """

    id: UUID
    project_id: UUID
    team_id: UUID
    server_session_id: UUID | None
    source_adapter: str
    source_event_id: str | None
    event_type: str
    platform_source: str | None
    origin: str
    generate: bool
    payload: object
    metadata: dict[str, object]
    occurred_at: datetime
    received_at: datetime
    created_at: datetime
    payload_purged_at: datetime | None = None
    """When the payload was emptied."""


class KeyedTime(msgspec.Struct, frozen=True, kw_only=True):
    """When the event with that key happened."""

    idempotency_key: str
    occurred_at: datetime


EVENT_COLUMNS: LiteralString = (
    "id, project_id, team_id, server_session_id, source_adapter, source_event_id, event_type, platform_source, origin, generate,"
    " payload, metadata, occurred_at, received_at, created_at, payload_purged_at"
)


class RecordedToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call, as it was stored."""

    id: UUID
    payload: object
    occurred_at: datetime
    received_at: datetime
    root: str | None
    """The root of the repository that its session is in, where its client named it."""


class ToolUseOfTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What a session did in the turn that is under way."""

    server_session_id: UUID | None
    tool_name: str | None
    tool_input: object
    cwd: str | None
    root: str | None
    """The root of the repository that the session is in, where its client named it."""
