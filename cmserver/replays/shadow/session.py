"""A session of the database in which batches run without writing anything that is real.

Its temporary tables have the names of those that batches write, and are found before them; the session is read-only, in which
PostgreSQL lets temporary tables alone be written. So what a batch writes is what it would write, and is gone with the session.
What batches only read, such as events, is read as it is. Nothing here fires: no trigger, index of words or notification.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.replays.model import Comparison, ReplayedBatch
from cmserver.replays.shadow import repository

T = TypeVar("T")


class ShadowDb:
    """The shadow as batches see it: one connection, one transaction at a time."""

    def __init__(self, conn: Conn, began: datetime) -> None:
        self._conn = conn
        self._began = began
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def system(self, *, answer_seconds: float | None = None) -> AsyncGenerator[Conn]:  # noqa: ARG002 - as the database has it
        """A transaction."""
        async with self._lock, self._conn.transaction():
            yield self._conn

    async def in_system(self, act: Callable[[Conn], Awaitable[T]], *, answer_seconds: float | None = None) -> T:
        """Run `act` in a transaction."""
        async with self.system(answer_seconds=answer_seconds) as conn:
            return await act(conn)

    async def load(self, team_id: UUID, session_ids: Sequence[UUID], until: datetime) -> None:
        """Begin with these sessions, as they were before anything was worded of them; what was there of others goes."""
        async with self._lock:
            await repository.empty(self._conn)
        await self.in_system(lambda conn: repository.load(conn, team_id, session_ids, until))

    async def hold(self, team_id: UUID, batches: Sequence[ReplayedBatch], *, is_alone: bool) -> None:
        """Before batches: what others had left open, where the session is alone, and what a summary tells beside events."""
        if is_alone:
            await self.in_system(lambda conn: repository.load_open_ends(conn, team_id, batches[0]))
        if not batches[0].is_plain:
            await self.in_system(lambda conn: repository.load_notes(conn, team_id, batches[0]))

    async def claim(self, batches: Sequence[ReplayedBatch], job_ids: Sequence[UUID], claim: int) -> None:
        """Give the lanes of the batches, and these jobs of theirs, to the claim."""
        await self.in_system(lambda conn: repository.hold(conn, [batch.lane for batch in batches], job_ids, claim))

    async def left(self, job_ids: Sequence[UUID]) -> set[UUID]:
        """Those of the jobs that have not ended."""
        return set(await self.in_system(lambda conn: repository.left(conn, job_ids)))

    async def end(self, batches: Sequence[ReplayedBatch]) -> None:
        """After batches: what they have made gets the times and numbers that it would have had."""
        await self.in_system(lambda conn: repository.age(conn, batches, self._began))

    async def compare(self, team_id: UUID, session_ids: Sequence[UUID], project_ids: Sequence[UUID]) -> Comparison:
        """What is stored of the sessions, and what the batches have made of the same."""
        return await self.in_system(lambda conn: repository.compare(conn, team_id, session_ids, project_ids))


@asynccontextmanager
async def open_shadow(db: Db, team_id: UUID) -> AsyncGenerator[ShadowDb]:
    """A shadow for a team's sessions. Whatever runs in it finds no real table that it could write."""
    async with db.own_session() as conn:
        yield ShadowDb(conn, await repository.make(conn, team_id))
