"""Group commit: stores single events of concurrent requests together, in one statement and one commit.

While a statement of a team is on its way, the events that arrive wait for the next statement, which takes them all. A lone event
waits for nothing. Each request is answered after the commit of its event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context
from itertools import groupby
from operator import attrgetter
from uuid import UUID

import psycopg

from cmserver.base.db import Db
from cmserver.base.errors import CmserverError
from cmserver.base.structs import reshape
from cmserver.generation.model import JobOrigin
from cmserver.ingest import repository
from cmserver.ingest.model import IngestRequest, NewEvent, StoredAt

MAX_EVENTS = 64
"""A statement takes at most this many events."""
MAX_CHARS = 2_000_000
"""A statement takes no further event when those it has are larger together, as JSON."""
PATIENCE_SECONDS = 0.05
"""A statement that takes longer no longer holds up the team's other sessions."""
_MAX_STATEMENTS = 4
"""A team has at most this many statements on their way, the slow ones included."""


class _WaitingEvent:
    """An event of a request that waits until it is stored."""

    def __init__(self, origin: JobOrigin, event: NewEvent) -> None:
        self.origin = origin
        self.event = event
        self.stored: asyncio.Future[StoredAt | None] = asyncio.get_running_loop().create_future()

    @property
    def lane(self) -> UUID:
        return self.event.lane

    def succeed(self, stored: StoredAt | None) -> None:
        if not self.stored.done():  # its caller may be gone
            self.stored.set_result(stored)

    def fail(self, error: BaseException) -> None:
        if not self.stored.done():
            self.stored.set_exception(error)


class _TeamEvents:
    """The events of a team that wait, and the statements that are on their way."""

    def __init__(self) -> None:
        self.waiting: list[_WaitingEvent] = []
        self.busy_lanes: set[UUID] = set()
        """Lanes of statements on their way: later events of a lane wait for them, so that a session keeps its order."""
        self.statements = 0
        self.slow_statements = 0

    def take(self) -> list[_WaitingEvent]:
        """The next group: the longest waiting events whose lanes are free. Empty when no further statement may start."""
        if self.statements > self.slow_statements or self.statements >= _MAX_STATEMENTS:
            return []
        group: list[_WaitingEvent] = []
        rest: list[_WaitingEvent] = []
        chars = 0
        for waiting in self.waiting:
            if waiting.lane in self.busy_lanes or len(group) >= MAX_EVENTS or (group and chars >= MAX_CHARS):
                rest.append(waiting)
            else:
                group.append(waiting)
                chars += waiting.event.size_chars
        self.waiting = rest
        return group


class EventGroups:
    """Stores single events, those that arrive together in groups. Share one per process."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._teams: dict[UUID, _TeamEvents] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def store(self, origin: JobOrigin, event: NewEvent) -> StoredAt | None:
        """Store the event; None when it was there already. Returns after the commit.

        Raises what the statement of this event raises: an event that cannot be stored does not affect the others of its group. When
        the caller is cancelled, the event is stored whole or not at all.
        """
        team = self._teams.setdefault(origin.team_id, _TeamEvents())
        waiting = _WaitingEvent(origin, event)
        team.waiting.append(waiting)
        group = team.take()
        if group == [waiting]:  # a lone event takes no task of its own
            await self._store_group(origin.team_id, team, group)
        elif group:
            self._start(origin.team_id, team, group)
        return await waiting.stored

    def _start(self, team_id: UUID, team: _TeamEvents, group: list[_WaitingEvent]) -> None:
        # Not in the context of whoever came last: the group is for several keys, and uses the share of none. A team has few groups.
        task = asyncio.create_task(self._store_group(team_id, team, group), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start_next(self, team_id: UUID, team: _TeamEvents) -> None:
        if group := team.take():
            self._start(team_id, team, group)
        elif not team.statements and not team.waiting:
            self._teams.pop(team_id, None)

    async def _store_group(self, team_id: UUID, team: _TeamEvents, group: list[_WaitingEvent]) -> None:
        """Store the group; meanwhile its lanes are busy. Starts the next group when it ends, or when it takes long."""
        lanes = {waiting.lane for waiting in group}
        team.statements += 1
        team.busy_lanes |= lanes
        is_slow = False

        def let_others_pass() -> None:
            nonlocal is_slow
            is_slow = True
            team.slow_statements += 1
            self._start_next(team_id, team)

        timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, let_others_pass)
        try:
            if len(group) == 1:
                await self._store_one(group[0])
            elif not await self._store_together(team_id, group):
                timer.cancel()
                if not is_slow:
                    let_others_pass()
                await self._store_by_lane(group)
        except BaseException as error:
            for waiting in group:
                waiting.fail(error)
            raise
        finally:
            timer.cancel()
            team.statements -= 1
            team.slow_statements -= is_slow
            team.busy_lanes -= lanes
            self._start_next(team_id, team)

    async def _store_together(self, team_id: UUID, group: Sequence[_WaitingEvent]) -> bool:
        """Store the group in one statement. False when nothing was stored, because of one of its events or a locked lane."""
        requests = [_build_request(waiting) for waiting in group]
        milliseconds = round(PATIENCE_SECONDS * 1000)
        try:
            rows = await self._db.statement_in_tenant(
                lambda conn: repository.ingest(conn, team_id, requests, lock_milliseconds=milliseconds)
            )
        except CmserverError as error:  # the database is away or full: it would refuse the others as well
            for waiting in group:
                waiting.fail(error)
            return True
        except psycopg.Error:
            return False
        stored = {row.id: row for row in rows}
        for waiting in group:
            waiting.succeed(stored.get(waiting.event.id))
        return True

    async def _store_by_lane(self, group: Sequence[_WaitingEvent]) -> None:
        """Store each by itself: lanes beside each other, the events of a lane in their order."""

        async def store_lane(events: Sequence[_WaitingEvent]) -> None:
            for waiting in events:
                await self._store_one(waiting)

        by_lane = groupby(sorted(group, key=attrgetter("lane")), key=attrgetter("lane"))
        await asyncio.gather(*(store_lane(list(events)) for _, events in by_lane))

    async def _store_one(self, waiting: _WaitingEvent) -> None:
        try:
            waiting.succeed(
                await self._db.statement_in_tenant(lambda conn: repository.ingest_one(conn, waiting.origin, waiting.event))
            )
        except (CmserverError, psycopg.Error) as error:
            waiting.fail(error)


def _build_request(waiting: _WaitingEvent) -> IngestRequest:
    return reshape(waiting.origin, IngestRequest, events=[waiting.event])
