"""Refusals leave a trace in the audit log of the key's team."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable

_EVERY_SECONDS = 60.0
_REMEMBERED = 10_000


class Denials:
    """Writes down who was refused and why: a key's first refusal of a reason in a minute, so that a flood does not fill the log."""

    def __init__(self, db: Db, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._told: dict[tuple[UUID, str], float] = {}

    async def require(self, principal: Principal, scope: str) -> None:
        """Forbidden, and that is written down, when the key has not the scope."""
        if not principal.may(scope):
            await self.record(principal, "scope_missing", scope=scope)
        principal.require(scope)

    async def record(self, principal: Principal, reason: str, **details: object) -> None:
        """In a transaction of its own: whatever was refused is not stored, but that is."""
        if principal.key_id is None:
            return
        told = (principal.key_id, reason)
        now = self._clock()
        if self._told.get(told, now) > now:
            return
        if len(self._told) >= _REMEMBERED:
            self._told.clear()
        self._told[told] = now + _EVERY_SECONDS
        try:
            async with self._db.tenant(principal.team_id) as conn:
                await audit.record(
                    conn,
                    principal,
                    "access.denied",
                    "api_key",
                    principal.key_id,
                    project_id=principal.project_id,
                    reason=reason,
                    **details,
                )
        except Unavailable:
            self._told.pop(told, None)  # the refusal stands in any case
