"""Guests: callers on this machine who have no key, for whom the operator has named a team (CMSERVER_TRUST_LOOPBACK)."""

from __future__ import annotations

import time
from uuid import UUID

from cmserver.access import announce, repository
from cmserver.access.limits.meter import Meter
from cmserver.access.model import Limits, Principal, Team
from cmserver.base.db import Db
from cmserver.base.errors import Unauthenticated
from cmserver.base.ids import parse_id
from cmserver.base.live import Hub

ACTOR = "guest on this machine"
SCOPES = frozenset({"events:write", "sessions:write", "observations:read"})
_COUNTED_AS = UUID(int=0)
"""In the place of a key, so that the team's limits hold for its guests as well."""
_REMEMBERED_SECONDS = 2.0


class Guests:
    """Gives guests the team that was named. One per process; it remembers and forgets like the authenticator.

    Which requests are a guest's is for the door to say.
    """

    def __init__(self, db: Db, hub: Hub, meter: Meter, named: str | None) -> None:
        self._db = db
        self._hub = hub
        self._meter = meter
        self._named = named
        self._known: tuple[float, Principal] | None = None
        self._changes = 0
        hub.on(announce.CHANNEL, self._forget)

    @property
    def are_welcome(self) -> bool:
        """Whether a team was named."""
        return self._named is not None

    async def admit(self, scope: str) -> Principal:
        """The guest, when it has the scope ("" asks for none). Unauthenticated when there is no such team, or it is archived."""
        who = self._recalled() or await self._looked_up()
        await self._meter.admit(who, scope)
        if scope:
            who.require(scope)
        return who

    def _recalled(self) -> Principal | None:
        if self._known is None or not self._hub.listening.is_set():
            return None
        until, who = self._known
        return who if until > time.monotonic() else None

    async def _looked_up(self) -> Principal:
        changes = self._changes
        named = self._named or ""
        async with self._db.system_statement() as conn:
            team = await repository.team_named(conn, named, parse_id(named))
        if team is None:
            raise Unauthenticated(
                f"CMSERVER_TRUST_LOOPBACK names the team {named!r}, which does not exist or is archived, so this needs an API key."
            )
        who = _guest(team)
        if self._hub.listening.is_set() and changes == self._changes:  # else it may be out of date already
            self._known = (time.monotonic() + _REMEMBERED_SECONDS, who)
        return who

    def _forget(self, _team: str) -> None:
        """Whichever team it is: another one may have got the name."""
        self._changes += 1
        self._known = None


def _guest(team: Team) -> Principal:
    return Principal(
        team_id=team.id,
        team_name=team.name,
        project_id=None,
        key_id=None,
        actor_id=ACTOR,
        scopes=SCOPES,
        limits=Limits(team_requests_per_minute=team.requests_per_minute, team_events_per_month=team.events_per_month),
        counts_as=_COUNTED_AS,
    )
