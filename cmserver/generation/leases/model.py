"""Workers and their leases."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that works on the outbox. Its lease holds as long as its heartbeat is younger than `lease_seconds`."""

    worker_id: int
    label: str
    """Host and process."""
    lease_seconds: float
    started_at: datetime
    last_heartbeat: datetime | None
    alive: bool
    lanes: int
    """Lanes that it holds."""
    oldest_batch_at: datetime | None
    """Since when it has the lane that it has had for longest."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker's heartbeat found."""

    is_alive: bool
    """Whether the lease is renewed. It is not once it has expired, or when the worker is gone."""
    has_lost_claims: bool
    """Whether the worker seems to hold lanes that it does not know; a claim whose answer is on its way looks like that."""
    due_seconds: float | None
    """In how many seconds the next free lane is due, 0 if one is; None when none is before the next heartbeat."""


class ReaperResult(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of dead workers that were requeued, and whether any lane was held before."""

    jobs: list[UUID]
    is_any_held: bool
