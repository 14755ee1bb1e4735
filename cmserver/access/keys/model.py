"""A key as it is managed: all but its secret."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What a key may do, for whom, and how long. Minted by another key or the operator; ended by rotation, revocation or time.

    Its scopes are the words it was minted with; `meaning` says what they stand for.
    """

    id: UUID
    name: str
    team_id: UUID
    project_id: UUID | None
    actor_id: str
    scopes: list[str]
    requests_per_minute: int | None
    events_per_month: int | None
    last_used_at: datetime | None
    expires_at: datetime | None
    expired: bool
    """By the database's clock."""
    revoked_at: datetime | None
    replaced_by: UUID | None
    created_at: datetime
    updated_at: datetime


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a key is to be allowed, before there is one. None is no limit."""

    scopes: list[str]
    project_id: UUID | None
    actor_id: str
    expires_at: datetime | None
    requests_per_minute: int | None
    events_per_month: int | None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A new key, with the text that is shown once."""

    key: Key
    text: str


def granted(key: Key) -> Grant:
    """What the key is allowed."""
    return Grant(
        scopes=key.scopes,
        project_id=key.project_id,
        actor_id=key.actor_id,
        expires_at=key.expires_at,
        requests_per_minute=key.requests_per_minute,
        events_per_month=key.events_per_month,
    )
