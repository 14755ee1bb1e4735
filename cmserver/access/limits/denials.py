"""Records refusals in the audit log of the caller's team."""

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
_RESOURCE_TYPES = {"key": "api_key", "person": "user"}


class Denials:
    """Records a caller's first refusal per reason and minute."""

    def __init__(self, db: Db, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._recorded_until: dict[tuple[UUID, str], float] = {}

    async def require(self, principal: Principal, scope: str) -> None:
        """Raise and record Forbidden when the caller lacks the scope."""
        if not principal.may(scope):
            await self.record(principal, "scope_missing", scope=scope)
        principal.require(scope)

    async def record(self, principal: Principal, reason: str, **details: object) -> None:
        """Record a refusal, in a transaction of its own, so that it is stored although the request is not."""
        caller_id = principal.key_id or principal.user_id or principal.usage_id
        if caller_id is None:  # an operator
            return
        refusal = (caller_id, reason)
        now = self._clock()
        if self._recorded_until.get(refusal, now) > now:
            return
        if len(self._recorded_until) >= _REMEMBERED:
            self._recorded_until.clear()
        self._recorded_until[refusal] = now + _EVERY_SECONDS
        try:
            async with self._db.tenant(principal.team_id) as conn:
                await audit.record(
                    conn,
                    principal,
                    "access.denied",
                    _RESOURCE_TYPES.get(principal.kind, principal.kind),
                    caller_id,
                    project_id=principal.project_id,
                    reason=reason,
                    **details,
                )
        except Unavailable:
            self._recorded_until.pop(refusal, None)
