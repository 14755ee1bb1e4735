"""Transactions of a worker that outlive an outage of the database, as long as its lease may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.sql import Conn

T = TypeVar("T")


class LeaseLostError(Exception):
    """The batch belongs to another claim by now; nothing was written."""


class Patience:
    """One per worker."""

    def __init__(self, db: Db, lease_seconds: float) -> None:
        self._db = db
        self._lease_seconds = lease_seconds

    async def __call__(self, act: Callable[[Conn], Awaitable[T]]) -> T:
        """`act` in a transaction; while the database is away, again and again, until the lease is over anyway."""
        end = time.monotonic() + self._lease_seconds
        wait = 0.1
        while True:
            try:
                return await self._db.in_system(act)
            except Unavailable:
                if time.monotonic() >= end:
                    raise LeaseLostError from None
                await asyncio.sleep(wait)
                wait = min(wait * 2, 1.0)
