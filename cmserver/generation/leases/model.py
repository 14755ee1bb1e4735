"""Workers and their leases."""

from __future__ import annotations

from datetime import datetime

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
