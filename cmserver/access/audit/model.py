"""A row of the audit log."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to which thing. Only appended; outlives what it names."""

    id: int
    action: str
    resource_type: str
    resource_id: str | None
    project_id: UUID | None
    actor_id: str | None
    api_key_id: UUID | None
    request_id: str | None
    details: dict[str, object]
    created_at: datetime
