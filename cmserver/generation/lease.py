"""Transactions of a worker that wait out an outage of the database for as long as the worker's lease lasts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from cmserver.base.db import SystemDb
from cmserver.base.errors import Unavailable
from cmserver.base.sql import Conn
from cmserver.base.waiting import backoff, retry

T = TypeVar("T")


class LeaseLostError(Exception):
    """The batch belongs to another claim by now; nothing was written."""


class LeaseOverError(LeaseLostError):
    """The database was away for as long as the lease lasts."""


async def retry_until_lease_ends(db: SystemDb, lease_seconds: float, action: Callable[[Conn], Awaitable[T]]) -> T:
    """Run `action` in a transaction, and again while the database is away. Raises LeaseOverError after `lease_seconds`."""
    pauses = backoff(0.1, 1.0, total_seconds=lease_seconds)
    try:
        return await retry(lambda: db.in_system(action, answer_seconds=lease_seconds), Unavailable, pauses)
    except Unavailable:
        raise LeaseOverError from None
