"""Events on the wire."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from cmserver.base.paging import Limit
from cmserver.base.text import Key, Label, Text


class EventsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, a key of the whole team sees all its projects. `session` is our id of a session, or its agent's. `type` is
    which to list: `tool_use`, `user_prompt` and others.
    """

    project: Text | None = None
    session: Key | None = None
    type: Label | None = None
    limit: Limit = 50
    cursor: str | None = None
    include: Literal["payload"] | None = None


class EventRowOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An event in a list, which has its payload with `include=payload` only. Times in epoch milliseconds.

    `origin` is how it reached the server: `hook`, `api`, `mcp`, `import` or `model`. `payloadPurgedAtEpoch` is when retention
    emptied the payload, or null while it is there.
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
    metadata: dict[str, object]
    occurred_at_epoch: int
    received_at_epoch: int
    created_at_epoch: int
    payload_purged_at_epoch: int | None


class EventOut(EventRowOut, rename="camel", frozen=True, kw_only=True):
    """An event with its payload as it was stored (redacted, long fields cut)."""

    payload: object


class EventsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first, by when they happened."""

    events: list[EventRowOut]
    next_cursor: str | None


class OneEventOut(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    event: EventOut
