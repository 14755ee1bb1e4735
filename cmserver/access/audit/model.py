"""The audit log: its rows, and what a reader may ask for."""

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
    user_id: UUID | None
    """The person who acted, by their account or a key of theirs."""
    request_id: str | None
    details: dict[str, object]
    created_at: datetime


class NewAuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of work that the program did by itself, as it is stored. `details` has ids and names, never texts."""

    project_id: UUID
    actor_id: str | None
    api_key_id: UUID | None
    action: str
    resource_type: str
    resource_id: str
    request_id: str | None
    details: dict[str, object]


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows; None is any."""

    project_id: UUID | None = None
    action: str | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    actor_id: str | None = None
    api_key_id: UUID | None = None
    without_reads: bool = False
    """Only what changed something: not who was given what."""


class ReaderCount(msgspec.Struct, frozen=True, kw_only=True):
    """Who read an observation in one way (`via`: get, search, list, ...), how often, and when last."""

    actor_id: str | None
    via: str
    count: int
    last_at: datetime
