"""Rate limits and quotas of keys and teams: counted in memory, and written to the database at most once a second per key."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access.limits import repository
from cmserver.access.limits.denials import Denials
from cmserver.access.model import NO_LIMITS, Limits, Principal
from cmserver.base.db import Db, read_as
from cmserver.base.errors import QuotaExceeded, RateLimited, Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.shares import Share, set_share
from cmserver.base.sql import Conn

log = get_logger(__name__)

_SYNC_SECONDS = 1.0
"""How long a process uses the counts that it last read."""
_MARK_INTERVAL_SECONDS = 60.0
_MAX_ENTRIES = 10_000
_INGEST_SCOPES = frozenset({"events:write", "sessions:write"})
_MIN_TOKENS = 0.99
"""Tokens that admit a request: less than one, because the clocks of processes and database differ slightly."""


class _TeamGoneError(Unavailable):
    """The team was deleted, so nothing is counted for it."""


class _Tally(msgspec.Struct):
    """Usage of a key or team: as the database had it at the last sync, and what came since."""

    id: UUID
    tokens: float = 0.0
    """Requests that were allowed at once at `filled_at`."""
    filled_at: float = -math.inf
    requests: int = 0
    stored: int = 0
    """This month's events in the database."""
    events: int = 0
    reserved: int = 0
    """Events that are being stored."""

    @property
    def used(self) -> int:
        return self.stored + self.events

    @property
    def is_pending(self) -> bool:
        return bool(self.requests or self.events or self.reserved)

    def left(self, per_minute: int, now: float) -> float:
        """Requests that are allowed at once, now."""
        return min(per_minute, self.tokens + (now - self.filled_at) * per_minute / 60)

    def take(self, per_minute: int | None, now: float) -> None:
        if per_minute is not None:
            self.tokens, self.filled_at = self.left(per_minute, now) - 1, now

    def set_tokens(self, left: float, per_minute: int | None, now: float) -> None:
        """Set the tokens to those left in the database, which counts other processes, if this process does not know of fewer."""
        left -= self.requests
        if per_minute is not None and self.filled_at > -math.inf:
            left = min(left, self.left(per_minute, now))
        self.tokens, self.filled_at = left, now


class _Key(_Tally):
    """A key together with the keys that rotations made of it, which share its usage."""

    limits: Limits = NO_LIMITS
    synced_at: float = -math.inf
    used_by: set[UUID] = set()
    """Which of the keys sent requests since the last sync."""
    marked_at: dict[UUID, float] = {}
    """When each was last marked as used."""


class _Team(_Tally):
    limits: Limits = NO_LIMITS
    """Only the two limits of the team are used."""
    keys: dict[UUID, _Key] = {}
    sync_task: asyncio.Task[None] | None = None


class Meter:
    """Rate limits and quotas; one instance per process, for one event loop.

    Usage is written about a second later, in one transaction for all keys of the team; only a key with limits waits for the
    database. People are counted like keys. Operators are not counted.
    """

    def __init__(self, db: Db, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self.denials = Denials(db)
        """Shared by everything that refuses requests."""
        self._teams: dict[UUID, _Team] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sync_all_task: asyncio.Task[None] | None = None

    async def admit(self, principal: Principal, scope: str) -> None:
        """Count a request of the key. RateLimited when its bucket, or its team's, is empty.

        Unavailable when the database is away and the scope is for writing; reads are admitted. What the request does from now on
        uses the principal's share, and reads what they may read.
        """
        if principal.kind != "operator":
            read_as(principal.user_id)
        set_share(Share(principal.usage_id, "ingest" if scope in _INGEST_SCOPES else "read", principal.team_id))
        if (tallies := self._tallies(principal)) is None:
            return
        team, key = tallies
        limits = key.limits
        if limits.requests_per_minute is not None or limits.team_requests_per_minute is not None:
            try:
                await self._refresh(team, key)
            except Unavailable:
                if scope.endswith(":write") or scope in {"admin", "*"}:
                    raise
            else:
                now = self._clock()
                refusal = _check_rate(
                    key, limits.requests_per_minute, now, "you" if principal.kind == "person" else "this key"
                ) or (_check_rate(team, limits.team_requests_per_minute, now, "all keys and people of this team together"))
                if refusal:
                    await self.denials.record(principal, "rate_limited")
                    raise refusal
                key.take(limits.requests_per_minute, now)
                team.take(limits.team_requests_per_minute, now)
        key.requests += 1
        team.requests += 1
        if principal.key_id is not None:
            key.used_by.add(principal.key_id)
        self._schedule_sync()

    async def admit_events(self, principal: Principal, events: int) -> None:
        """Reserve events before they are stored; `count_events` must follow. QuotaExceeded when they exceed a quota."""
        if (tallies := self._tallies(principal)) is None:
            return
        team, key = tallies
        limits = key.limits
        if limits.events_per_month is not None or limits.team_events_per_month is not None:
            await self._refresh(team, key)
            refusal = _check_quota(key, limits.events_per_month, events, "This key") or (
                _check_quota(team, limits.team_events_per_month, events, "This team", show_used=principal.project_id is None)
            )
            if refusal:
                await self.denials.record(principal, "quota_exceeded")
                raise refusal
        key.reserved += events
        team.reserved += events

    def count_events(self, principal: Principal, stored: int, *, admitted: int) -> None:
        """Release `admitted` reserved events and count those that were stored; the others were duplicates, or failed."""
        for tally in self._tallies(principal) or ():
            tally.reserved = max(0, tally.reserved - admitted)
            tally.events += stored
        if stored:
            self._schedule_sync()

    async def flush(self) -> None:
        """Write all counts to the database, before the process stops."""
        for team in list(self._teams.values()):
            try:
                while team.sync_task is not None:
                    await asyncio.shield(team.sync_task)
                if any(key.is_pending for key in team.keys.values()):
                    await self._sync(team, team.keys.values())
            except _TeamGoneError:
                continue
            except Unavailable:
                log.warning("usage.not_written", team_id=str(team.id))
                return

    def _tallies(self, principal: Principal) -> tuple[_Team, _Key] | None:
        """The counts of the key's team and of the key; made when they are new. None for an operator."""
        counted_id = principal.usage_id
        if counted_id is None:
            return None
        team = self._teams.get(principal.team_id)
        if team is None:
            if len(self._teams) >= _MAX_ENTRIES:
                self._teams = {team.id: team for team in self._teams.values() if team.is_pending or team.sync_task}
            team = self._teams[principal.team_id] = _Team(principal.team_id, keys={})
        key = team.keys.get(counted_id)
        if key is None:
            if len(team.keys) >= _MAX_ENTRIES:
                team.keys = {key.id: key for key in team.keys.values() if key.is_pending}
            key = team.keys[counted_id] = _Key(counted_id)
        if key.limits is not principal.limits and key.limits != principal.limits:
            key.synced_at = key.filled_at = -math.inf  # its counts are for other limits
            if team.limits.team_requests_per_minute != principal.limits.team_requests_per_minute:
                team.filled_at = -math.inf
            key.limits = team.limits = principal.limits
        return team, key

    async def _refresh(self, team: _Team, key: _Key) -> None:
        """Sync unless the last sync is less than a second old; concurrent callers share one."""
        while self._clock() - key.synced_at >= _SYNC_SECONDS:
            if team.sync_task is not None:
                await asyncio.shield(team.sync_task)
            else:
                await self._sync(team, [key, *(other_key for other_key in self._keys_to_sync(team) if other_key is not key)])

    def _keys_to_sync(self, team: _Team) -> list[_Key]:
        now = self._clock()
        return [key for key in team.keys.values() if (key.requests or key.events) and now - key.synced_at >= _SYNC_SECONDS]

    async def _sync(self, team: _Team, keys: Iterable[_Key]) -> None:
        # A task of its own, so that it continues when one of its callers is cancelled.
        team.sync_task = asyncio.create_task(self._run_sync(team, list(keys)))
        await asyncio.shield(team.sync_task)

    async def _run_sync(self, team: _Team, keys: list[_Key]) -> None:
        """Write what these keys and their team used, and read what is left."""
        requests = {key.id: key.requests for key in keys}
        events = {key.id: key.events for key in keys}
        team_requests = team.requests
        taken_requests = {
            key.id: (per_minute, key.requests) for key in keys if (per_minute := key.limits.requests_per_minute) is not None
        }
        if team.limits.team_requests_per_minute is not None:
            taken_requests[team.id] = (team.limits.team_requests_per_minute, team.requests)
        counts = [
            (key, kind, amount)
            for kind, amounts in (("events", events), ("requests", requests))
            for key, amount in amounts.items()
            if amount
        ]
        now = self._clock()
        used = {
            key_id: key
            for key in keys
            for key_id in key.used_by
            if now - key.marked_at.get(key_id, -math.inf) >= _MARK_INTERVAL_SECONDS
        }
        has_quota = any(key.limits.events_per_month is not None or key.limits.team_events_per_month is not None for key in keys)

        async def exchange(conn: Conn) -> tuple[dict[UUID, float], dict[UUID, int]]:
            left = await repository.take(conn, team.id, taken_requests) if taken_requests else {}
            if counts:
                await repository.count(conn, team.id, counts)
            if used:
                await repository.mark_used(conn, team.id, list(used))
            return left, await repository.stored(conn, team.id) if has_quota else {}

        try:
            left, stored = await self._db.in_tenant(team.id, exchange)
        except errors.ForeignKeyViolation as error:
            self._teams.pop(team.id, None)
            raise _TeamGoneError("The team was deleted.") from error
        finally:
            team.sync_task = None
        for key in keys:
            key.requests -= requests[key.id]
            key.events -= events[key.id]
            key.set_tokens(left.get(key.id, 0.0), key.limits.requests_per_minute, now)
            key.stored = stored.get(key.id, 0)
            key.synced_at = self._clock()
            key.used_by.clear()
        for key_id, key in used.items():
            key.marked_at[key_id] = now
        team.requests -= team_requests
        team.events -= sum(events.values())
        team.set_tokens(left.get(team.id, 0.0), team.limits.team_requests_per_minute, now)
        team.stored = sum(stored.values())

    def _schedule_sync(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SYNC_SECONDS, self._start_sync_all)

    def _start_sync_all(self) -> None:
        self._timer = None
        if self._sync_all_task is None or self._sync_all_task.done():
            self._sync_all_task = asyncio.create_task(self._sync_all())
        else:
            self._schedule_sync()

    async def _sync_all(self) -> None:
        """Write the counts of all keys that have any; the rest is tried again a second later."""
        for team in list(self._teams.values()):
            if team.sync_task is None and (keys := self._keys_to_sync(team)):
                try:
                    await self._sync(team, keys)
                except _TeamGoneError:
                    continue
                except Unavailable:
                    log.warning("usage.not_written", team_id=str(team.id))
                    return  # counts are kept, and written after the next request
        if any(key.requests or key.events for team in self._teams.values() for key in team.keys.values()):
            self._schedule_sync()


def _check_rate(tally: _Tally, per_minute: int | None, now: float, subject: str) -> RateLimited | None:
    """The refusal of one more request when `per_minute` is used up; None when it is possible, or without a limit."""
    if per_minute is None or (left := tally.left(per_minute, now)) >= _MIN_TOKENS:
        return None
    wait = math.ceil((1 - left) * 60 / per_minute)
    return RateLimited(
        f"Too many requests: {subject} may make {per_minute:,} a minute. The next one is possible in {wait} s.",
        wait,
        limit=per_minute,
        full_after_seconds=math.ceil((per_minute - left) * 60 / per_minute),
    )


def _check_quota(tally: _Tally, cap: int | None, events: int, subject: str, *, show_used: bool = True) -> QuotaExceeded | None:
    """The refusal of these events when they exceed `cap` in this month; None when they fit, or without a cap."""
    if cap is None or tally.used + tally.reserved + events <= cap:
        return None
    # A key that is bound to a project must not learn what other projects use.
    used = f"has stored {tally.used:,} of its {cap:,} events" if show_used else f"has used up its {cap:,} events"
    return QuotaExceeded(f"{subject} {used} of this month; {events:,} more exceed that, so none of them was stored.")
