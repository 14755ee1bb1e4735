"""Checks that the database keeps teams apart and delivers notifications."""

from __future__ import annotations

import asyncio

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.notifications import NotificationListener, check_notifications

_KEEP_SUCCESS_SECONDS = 5.0
_KEEP_FAILURE_SECONDS = 1.0


class Readiness:
    """The checks' last result, kept for some seconds: anybody may ask, and each check costs a NOTIFY."""

    def __init__(self, db: Db, notifications: NotificationListener) -> None:
        self._db = db
        self._notifications = notifications
        self._lock = asyncio.Lock()
        self._valid_until = 0.0
        self._fault: Unavailable | None = None

    async def check(self) -> None:
        """Unavailable, with the reason, when the server is not ready."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._valid_until:
                self._fault = await self._find_fault()
                self._valid_until = loop.time() + (_KEEP_FAILURE_SECONDS if self._fault else _KEEP_SUCCESS_SECONDS)
            if self._fault is not None:
                raise Unavailable(str(self._fault))

    async def _find_fault(self) -> Unavailable | None:
        try:
            await self._db.check_tenant()
            await check_notifications(self._db, self._notifications)
        except Unavailable as error:
            return error
        return None
