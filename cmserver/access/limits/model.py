"""What is used, and what is left of it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Bucket(msgspec.Struct, frozen=True):
    """A token bucket as the database has it now. Less than nothing is left when several processes let too many pass."""

    id: UUID
    tokens: float


class Stored(msgspec.Struct, frozen=True):
    """Events that a key has stored in this month."""

    api_key_id: UUID
    events: int


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What a key, or a team, has used since the month began."""

    since: datetime
    requests: int
    events: int
