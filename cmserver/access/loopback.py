"""Access for callers on this machine without a key, to the team that the operator has named (CMSERVER_TRUST_LOOPBACK)."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import repository
from cmserver.access.announce import CHANNEL
from cmserver.access.limits.meter import Meter
from cmserver.access.model import Limits, Principal
from cmserver.base.db import Db
from cmserver.base.errors import Unauthenticated
from cmserver.base.ids import parse_id
from cmserver.base.notifications import NotificationListener, TeamCache

ACTOR = "guest on this machine"
SCOPES = frozenset({"events:write", "sessions:write", "observations:read"})
_COUNTS_AS = UUID(int=0)
"""Used as a key id, so that the team's limits apply to guests."""
_CACHE_SECONDS = 2.0


class LoopbackAccess:
    """Admits callers on this machine without a key to the named team. The caller decides which requests are theirs."""

    def __init__(self, db: Db, notifications: NotificationListener, meter: Meter, team_name: str | None) -> None:
        self._db = db
        self._meter = meter
        self._team_name = team_name
        # A change of any team drops the entries: another team may have taken the name.
        self._cache = TeamCache[str, Principal](notifications, CHANNEL, lambda _: None, seconds=_CACHE_SECONDS)

    @property
    def is_enabled(self) -> bool:
        """Whether a team was named."""
        return self._team_name is not None

    async def admit(self, scope: str, *, more_scopes: frozenset[str] = frozenset()) -> Principal:
        """The guest, if `scope` ("" for none) is its own or of `more_scopes`; Unauthenticated when the team is gone or archived."""
        name = self._team_name or ""
        principal = self._cache.get(name) or await self._cache.load(name, lambda: self._look_up(name))
        if more_scopes:
            principal = msgspec.structs.replace(principal, scopes=principal.scopes | more_scopes)
        await self._meter.admit(principal, scope)
        if scope:
            principal.require(scope)
        return principal

    async def _look_up(self, name: str) -> Principal:
        async with self._db.system_statement() as conn:
            team = await repository.team_named(conn, name, parse_id(name))
        if team is None:
            raise Unauthenticated(
                f"CMSERVER_TRUST_LOOPBACK names the team {name!r}, which does not exist or is archived. Send an API key."
            )
        return Principal(
            kind="guest",
            team_id=team.id,
            team_name=team.name,
            project_id=None,
            key_id=None,
            actor_id=ACTOR,
            scopes=SCOPES,
            limits=Limits(team_requests_per_minute=team.requests_per_minute, team_events_per_month=team.events_per_month),
            counts_as=_COUNTS_AS,
        )
