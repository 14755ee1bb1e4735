"""Keys without their secrets, and what they may do."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.base.structs import reshape


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key: what it may do, for which actor, and until when. Its scopes may include older words (`expand_scopes`)."""

    id: UUID
    name: str
    team_id: UUID
    project_id: UUID | None
    actor_id: str
    user_id: UUID | None
    """The person who made it for themselves."""
    made_by: UUID | None
    """The person who made it, for themselves or for another actor, also by a key of theirs."""
    scopes: list[str]
    requests_per_minute: int | None
    events_per_month: int | None
    last_used_at: datetime | None
    expires_at: datetime | None
    expired: bool
    """Whether the key has expired, by the database's clock."""
    revoked_at: datetime | None
    replaced_by: UUID | None
    created_at: datetime
    updated_at: datetime


class KeyGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What a key may do. None means no limit."""

    scopes: list[str]
    project_id: UUID | None
    actor_id: str
    user_id: UUID | None = None
    made_by: UUID | None = None
    expires_at: datetime | None
    requests_per_minute: int | None
    events_per_month: int | None


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A requested key. Missing fields are as in the caller's key; None means no limit."""

    scopes: list[str]
    name: str = ""
    project_id: UUID | None = None
    actor_id: str | None = None
    personal: bool = True
    """Whether it is a person's who makes it for themselves; one for another actor never is."""
    expires_in_days: int | None = None
    requests_per_minute: int | UnsetType | None = UNSET
    events_per_month: int | UnsetType | None = UNSET


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key with its text, which is shown only once."""

    key: Key
    text: str

    @property
    def id(self) -> UUID:
        return self.key.id


class RevokedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """A revoked key, and the keys of its chain of rotations that were revoked with it."""

    key: Key
    others: list[Key]


def read_grant(key: Key) -> KeyGrant:
    """What the key may do."""
    return reshape(key, KeyGrant)
