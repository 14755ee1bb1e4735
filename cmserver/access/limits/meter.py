"""How much each key and team may use: counted in memory, and told to the database at most once a second a key."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from uuid import UUID

import msgspec
import structlog
from psycopg import errors
from structlog.typing import FilteringBoundLogger

from cmserver.access.limits import repository
from cmserver.access.limits.denials import Denials
from cmserver.access.model import NO_LIMITS, Limits, Principal
from cmserver.base.db import Db
from cmserver.base.errors import QuotaExceeded, RateLimited, Unavailable
from cmserver.base.sql import Conn

log: FilteringBoundLogger = structlog.get_logger(__name__)

_SECONDS = 1.0
"""How long a process goes by what it knows."""
_MARKED_SECONDS = 60.0
_REMEMBERED = 10_000
_ENOUGH = 0.99
"""Of a request, to let it in: the clocks of processes and database are a hair apart, and who waited as told must not wait again."""


class _TeamGoneError(Unavailable):
    """Nothing can be counted any more, and need not."""


class _Tally(msgspec.Struct):
    """A key, or a team: what the database said of it when it was last asked, and what came since and is not told yet."""

    id: UUID
    tokens: float = 0.0
    """Requests that could come at once, at `filled_at`."""
    filled_at: float = -math.inf
    requests: int = 0
    stored: int = 0
    """This month's events, by the database."""
    events: int = 0
    reserved: int = 0
    """Events that are just being stored."""

    @property
    def used(self) -> int:
        return self.stored + self.events

    @property
    def is_pending(self) -> bool:
        return bool(self.requests or self.events or self.reserved)

    def left(self, per_minute: int, now: float) -> float:
        """Requests that could come at once, now."""
        return min(per_minute, self.tokens + (now - self.filled_at) * per_minute / 60)

    def take(self, per_minute: int | None, now: float) -> None:
        if per_minute is not None:
            self.tokens, self.filled_at = self.left(per_minute, now) - 1, now

    def hear(self, left: float, per_minute: int | None, now: float) -> None:
        """What is left by the database. It knows of the other processes, and this one when in the last second each request came."""
        left -= self.requests
        if per_minute is not None and self.filled_at > -math.inf:
            left = min(left, self.left(per_minute, now))
        self.tokens, self.filled_at = left, now


class _Key(_Tally):
    """With those that a rotation has made of it: they go on counting where it stopped."""

    limits: Limits = NO_LIMITS
    asked_at: float = -math.inf
    seen: set[UUID] = set()
    """Which of them have asked since the database was last told."""
    marked: dict[UUID, float] = {}
    """When they were last marked as used."""


class _Team(_Tally):
    limits: Limits = NO_LIMITS
    """Of its keys' limits the two that are the team's."""
    keys: dict[UUID, _Key] = {}
    asking: asyncio.Task[None] | None = None


class Meter:
    """Rate limits and quotas. One per process; not to be used from several event loops.

    A key without limits costs no question: what it used is written about a second later, in one transaction for all keys of the
    team. An operator who asks without a key is not counted.
    """

    def __init__(self, db: Db, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self.denials = Denials(db)
        """One for all who refuse, so that what is told of a key is told once."""
        self._teams: dict[UUID, _Team] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None

    async def admit(self, principal: Principal, scope: str) -> None:
        """One more request of the key. RateLimited when its bucket, or its team's, is empty.

        Unavailable when the database cannot be asked and the scope is one for writing; reads go on.
        """
        if (tallies := self._of(principal)) is None:
            return
        team, key = tallies
        limits = key.limits
        if limits.requests_per_minute is not None or limits.team_requests_per_minute is not None:
            try:
                await self._freshen(team, key)
            except Unavailable:
                if scope.endswith(":write") or scope in {"admin", "*"}:
                    raise
            else:
                now = self._clock()
                refusal = _too_many(key, limits.requests_per_minute, now, "this key") or (
                    _too_many(team, limits.team_requests_per_minute, now, "all keys of this team together")
                )
                if refusal:
                    await self.denials.record(principal, "rate_limited")
                    raise refusal
                key.take(limits.requests_per_minute, now)
                team.take(limits.team_requests_per_minute, now)
        key.requests += 1
        team.requests += 1
        if principal.key_id is not None:
            key.seen.add(principal.key_id)
        self._tell_soon()

    async def admit_events(self, principal: Principal, events: int) -> None:
        """Set events aside that are about to be stored; `count_events` must follow. QuotaExceeded when they would pass a quota."""
        if (tallies := self._of(principal)) is None:
            return
        team, key = tallies
        limits = key.limits
        if limits.events_per_month is not None or limits.team_events_per_month is not None:
            await self._freshen(team, key)
            refusal = _too_much(key, limits.events_per_month, events, "This key") or (
                _too_much(team, limits.team_events_per_month, events, "This team", tell_used=principal.project_id is None)
            )
            if refusal:
                await self.denials.record(principal, "quota_exceeded")
                raise refusal
        key.reserved += events
        team.reserved += events

    def count_events(self, principal: Principal, stored: int, *, admitted: int) -> None:
        """Of the events that were admitted so many are stored; the others had come before, or failed."""
        for tally in self._of(principal) or ():
            tally.reserved = max(0, tally.reserved - admitted)
            tally.events += stored
        if stored:
            self._tell_soon()

    async def flush(self) -> None:
        """Tell the database everything, now; before the process stops."""
        for team in list(self._teams.values()):
            try:
                while team.asking is not None:
                    await asyncio.shield(team.asking)
                if any(key.is_pending for key in team.keys.values()):
                    await self._ask(team, team.keys.values())
            except _TeamGoneError:
                continue
            except Unavailable:
                log.warning("usage.not_written", team_id=str(team.id))
                return

    def _of(self, principal: Principal) -> tuple[_Team, _Key] | None:
        counted = principal.counts_as or principal.key_id
        if counted is None:
            return None
        team = self._teams.get(principal.team_id)
        if team is None:
            if len(self._teams) >= _REMEMBERED:
                self._teams = {team.id: team for team in self._teams.values() if team.is_pending or team.asking}
            team = self._teams[principal.team_id] = _Team(principal.team_id, keys={})
        key = team.keys.get(counted)
        if key is None:
            if len(team.keys) >= _REMEMBERED:
                team.keys = {key.id: key for key in team.keys.values() if key.is_pending}
            key = team.keys[counted] = _Key(counted)
        if key.limits is not principal.limits and key.limits != principal.limits:
            key.asked_at = key.filled_at = -math.inf  # what it knows is about other limits
            if team.limits.team_requests_per_minute != principal.limits.team_requests_per_minute:
                team.filled_at = -math.inf
            key.limits = team.limits = principal.limits
        return team, key

    async def _freshen(self, team: _Team, key: _Key) -> None:
        """Ask the database unless it was asked less than a second ago. Whoever comes meanwhile shares the answer."""
        while self._clock() - key.asked_at >= _SECONDS:
            if team.asking is not None:
                await asyncio.shield(team.asking)
            else:
                await self._ask(team, [key, *(one for one in self._due(team) if one is not key)])

    def _due(self, team: _Team) -> list[_Key]:
        now = self._clock()
        return [key for key in team.keys.values() if (key.requests or key.events) and now - key.asked_at >= _SECONDS]

    async def _ask(self, team: _Team, keys: Iterable[_Key]) -> None:
        # A task of its own: it belongs to all who wait for it, and goes on when one of them is cancelled.
        team.asking = asyncio.create_task(self._exchange(team, list(keys)))
        await asyncio.shield(team.asking)

    async def _exchange(self, team: _Team, keys: list[_Key]) -> None:
        """Tell the database what these keys and their team used, and hear what is left."""
        requests = {key.id: key.requests for key in keys}
        events = {key.id: key.events for key in keys}
        of_team = team.requests
        taken = {key.id: (most, key.requests) for key in keys if (most := key.limits.requests_per_minute) is not None}
        if team.limits.team_requests_per_minute is not None:
            taken[team.id] = (team.limits.team_requests_per_minute, team.requests)
        counted = [
            (key, kind, amount)
            for kind, amounts in (("events", events), ("requests", requests))
            for key, amount in amounts.items()
            if amount
        ]
        now = self._clock()
        used = {one: key for key in keys for one in key.seen if now - key.marked.get(one, -math.inf) >= _MARKED_SECONDS}
        has_quota = any(key.limits.events_per_month is not None or key.limits.team_events_per_month is not None for key in keys)

        async def exchange(conn: Conn) -> tuple[dict[UUID, float], dict[UUID, int]]:
            left = await repository.take(conn, team.id, taken) if taken else {}
            if counted:
                await repository.count(conn, team.id, counted)
            if used:
                await repository.mark_used(conn, team.id, list(used))
            return left, await repository.stored(conn, team.id) if has_quota else {}

        try:
            left, stored = await self._db.in_tenant(team.id, exchange)
        except errors.ForeignKeyViolation as error:
            self._teams.pop(team.id, None)
            raise _TeamGoneError("This team has just been deleted.") from error
        finally:
            team.asking = None
        for key in keys:
            key.requests -= requests[key.id]
            key.events -= events[key.id]
            key.hear(left.get(key.id, 0.0), key.limits.requests_per_minute, now)
            key.stored = stored.get(key.id, 0)
            key.asked_at = self._clock()
            key.seen.clear()
        for one, key in used.items():
            key.marked[one] = now
        team.requests -= of_team
        team.events -= sum(events.values())
        team.hear(left.get(team.id, 0.0), team.limits.team_requests_per_minute, now)
        team.stored = sum(stored.values())

    def _tell_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SECONDS, self._strike)

    def _strike(self) -> None:
        self._timer = None
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())
        else:
            self._tell_soon()

    async def _tell(self) -> None:
        for team in list(self._teams.values()):
            if team.asking is None and (due := self._due(team)):
                try:
                    await self._ask(team, due)
                except _TeamGoneError:
                    continue
                except Unavailable:
                    log.warning("usage.not_written", team_id=str(team.id))
                    return  # it is kept, and tried again after the next request
        if any(key.requests or key.events for team in self._teams.values() for key in team.keys.values()):
            self._tell_soon()


def _too_many(tally: _Tally, per_minute: int | None, now: float, whose: str) -> RateLimited | None:
    if per_minute is None or (left := tally.left(per_minute, now)) >= _ENOUGH:
        return None
    wait = math.ceil((1 - left) * 60 / per_minute)
    return RateLimited(
        f"Too many requests: {whose} may make {per_minute:,} a minute. The next one is possible in {wait} s.",
        wait,
        limit=per_minute,
        full_after_seconds=math.ceil((per_minute - left) * 60 / per_minute),
    )


def _too_much(tally: _Tally, cap: int | None, events: int, who: str, *, tell_used: bool = True) -> QuotaExceeded | None:
    if cap is None or tally.used + tally.reserved + events <= cap:
        return None
    # A key that is bound to a project learns nothing of what the others do.
    used = f"has stored {tally.used:,} of its {cap:,} events" if tell_used else f"has used up its {cap:,} events"
    return QuotaExceeded(f"{who} {used} of this month; {events:,} more would pass that, and none of them was stored.")
