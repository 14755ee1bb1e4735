"""Raw events of coding agents: what they did, as they told it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

Origin = Literal["hook", "api", "mcp", "import", "model"]
"""The door that an event or an observation came through. The server says it; nobody sends it."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing an agent reported: a tool use, a prompt, a message. Stored once by its idempotency key, redacted; never changed."""

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
