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


class EventKind(msgspec.Struct, frozen=True, kw_only=True):
    """What an event is, without its content. `tool` is None where it is no call of one, or its payload is emptied."""

    id: UUID
    event_type: str
    tool: str | None


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


class StoredToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as it was stored, with where it belongs, and the number of the first observation made of it."""

    id: UUID
    project_id: UUID
    project: str
    server_session_id: UUID | None
    session: str | None
    """The session's id at its agent."""
    platform_source: str | None
    source_event_id: str | None
    payload: object
    """None where retention has emptied it."""
    metadata: dict[str, object]
    occurred_at: datetime
    prompt_number: int | None
    observation_number: int | None

    @property
    def tool_use_id(self) -> str | None:
        """The agent's id of the call."""
        prefix, _, name = (self.source_event_id or "").partition(":")
        return name if prefix == "tool" and name else None


class ToolUseFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on tool calls; None is no condition. `since` is inclusive, `until` exclusive."""

    session: str | None = None
    tool_names: list[str] | None = None
    agent_id: str | None = None
    platforms: list[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    is_oldest_first: bool = False


class ToolUseOfTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What a session did in the turn that is under way."""

    server_session_id: UUID | None
    tool_name: str | None
    tool_input: object
    cwd: str | None
    root: str | None
    """The root of the repository that the session is in, where its client named it."""


class ToolUseWithText(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a turn. `root` is that of the repository that its session is in, where its client named it."""

    turn_id: UUID
    event_type: str
    payload: object
    root: str | None
    at: datetime
