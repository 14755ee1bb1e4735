"""The live feed: one for all streams of the process. It reads what is new in the two logs once, and gives each reader his share.

Nothing is written for it. The audit log and the jobs' lifecycle log are there already, and both are durable: whoever comes back
reads on from where he was, on any process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from uuid import UUID

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.access import announce
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import RateLimited, Unavailable
from cmserver.base.live import Hub
from cmserver.generation.bell import DONE, JOBS
from cmserver.ops.stream import repository
from cmserver.ops.stream.model import Look, Name, Position, Told
from cmserver.ops.stream.reader import Reader
from cmserver.ops.stream.tell import tell, to_look_up
from cmserver.ops.stream.wire import ResetTold, Tickets, event

log: FilteringBoundLogger = structlog.get_logger(__name__)

_TICK_SECONDS = 0.1
_POLL_SECONDS = 1.0
_KEYS_SECONDS = 15.0
_PAGE = 5000
_REPLAY_PAGE = 1000
_TAIL = 1000
_RETRY_MS = 2000
_RESUME_REACH = 200_000  # back in the ids of all teams: the lifecycle log is not sorted by team


class Edge:
    """How far one log is settled. Ids are given before the commit, so a lower one may become visible after a higher one: behind a
    gap nothing is told until the gap is filled, or can be filled no more.

    It can not when every transaction has ended that ran when an id behind it was seen: of those, one may hold it, and later ones
    get higher ids. (For a moment a transaction may have an id and no number yet. None of those that the stream tells of: they have
    written other rows before.)
    """

    def __init__(self) -> None:
        self._last = 0
        self._fence: tuple[int, int] | None = None
        self.is_open = False
        """There is a gap, and nobody has said yet what to wait for."""

    def settled(self, after: int, last: int, gaps: list[tuple[int, int]], oldest_running: int) -> int:
        """Up to where, of what is visible between `after` and `last`. A gap is the id before it and the last that is missing."""
        if self._fence and oldest_running >= self._fence[1]:
            after = max(after, self._fence[0])
            self._fence = None
        upto = next((max(before, after) for before, end in gaps if end > after), max(last, after))
        self._last = last
        self.is_open = upto < last and self._fence is None
        return upto

    def wait_for(self, transaction: int) -> None:
        """All that ran when the log was looked at have lower numbers."""
        if self.is_open:
            self._fence = (self._last, transaction)
            self.is_open = False


class Edges:
    """Of both logs."""

    def __init__(self) -> None:
        self._audit, self._jobs = Edge(), Edge()

    @property
    def is_open(self) -> bool:
        return self._audit.is_open or self._jobs.is_open

    def settled(self, after: Position, seen: Look) -> Position:
        audit_gaps = list(zip(seen.audit_gaps, seen.audit_gap_ends, strict=True))
        jobs_gaps = list(zip(seen.jobs_gaps, seen.jobs_gap_ends, strict=True))
        return Position(
            audit=self._audit.settled(after.audit, seen.audit_last, audit_gaps, seen.oldest_running),
            jobs=self._jobs.settled(after.jobs, seen.jobs_last, jobs_gaps, seen.oldest_running),
        )

    def wait_for(self, transaction: int) -> None:
        self._audit.wait_for(transaction)
        self._jobs.wait_for(transaction)


class Feed:
    """One per process; does nothing while nobody listens. `secret` is the installation's, for event ids."""

    def __init__(self, db: Db, hub: Hub, *, secret: bytes, heartbeat_seconds: float, streams_per_key: int) -> None:
        self._db = db
        self._tickets = Tickets(secret)
        self._heartbeat_seconds = heartbeat_seconds
        self._streams_per_key = streams_per_key
        self._readers: dict[UUID, set[Reader]] = {}
        self._news = asyncio.Event()
        self._keys_due = 0.0
        self._looking = asyncio.Lock()
        """Held while the logs are looked at and told: nobody joins in the middle of it."""
        self._position = Position(audit=0, jobs=0)
        self._edges = Edges()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.patience_seconds = 2.0
        """How long somebody who comes is kept waiting for open transactions."""
        self.resume_rows = 10_000
        """So many rows of his team are told again to one who comes back; if there are more, he begins anew."""
        for channel in (JOBS, DONE, announce.NEWS):
            hub.on(channel, lambda _: self._news.set())
        hub.on(announce.CHANNEL, lambda _: self._look_at_keys())

    # -- for the door

    async def join(
        self, who: Principal, *, project_id: UUID | None, names: frozenset[Name], last_event_id: str | None
    ) -> tuple[Reader, bool]:
        """A reader, to be given back with `leave`; and whether he must begin anew, as nobody knows where he was.

        RateLimited when the key has too many streams open.
        """
        async with self._looking:
            if self._closed:
                raise Unavailable("The server is about to stop; connect again in a moment.")
            if sum(reader.key_id == who.key_id for reader in self._all()) >= self._streams_per_key:
                raise RateLimited(
                    f"This key has {self._streams_per_key:,} streams open, as many as it may (CMSERVER_STREAMS_PER_KEY).",
                    retry_after_seconds=self._heartbeat_seconds,
                    limit=self._streams_per_key,
                    full_after_seconds=self._heartbeat_seconds,
                )
            if not self._readers:
                self._position = await self._now()
                self._edges = Edges()
            if self._task is None:
                self._task = asyncio.create_task(self._run())
            since = self._tickets.read(last_event_id) if last_event_id else None
            if since and self._is_out_of_reach(since):
                since = None
            reader = Reader(who.team_id, who.key_id, project_id, names, self._position, since)
            self._readers.setdefault(who.team_id, set()).add(reader)
            self._look_at_keys()  # his may have been revoked since it was let in
        try:
            if since and await self._is_too_much(reader, since):
                reader.since = None
        except BaseException:
            self.leave(reader)
            raise
        return reader, bool(last_event_id) and reader.since is None

    def listeners(self, who: Principal) -> int:
        """How many streams of the team are open here; for a key that is bound to a project, of that one."""
        return sum(who.sees(reader.project_id) for reader in self._readers.get(who.team_id, ()))

    def leave(self, reader: Reader) -> None:
        reader.end()
        mates = self._readers.get(reader.team_id, set())
        mates.discard(reader)
        if not mates:
            self._readers.pop(reader.team_id, None)

    async def read(self, reader: Reader, *, lost: bool) -> AsyncGenerator[bytes]:
        """The text of the stream, until the reader is ended."""
        # An id without data moves the client's Last-Event-ID and is no event: one to whom nothing happens can resume, too.
        begin = self._tickets.write(reader.since or reader.start)
        yield b"retry: %d\nid: %b\n\n" % (_RETRY_MS, begin.encode())
        if lost:
            told = ResetTold(reason="What came after that event id cannot be told again. Read anew what you show.")
            yield event("reset", begin, told)
        if reader.since:
            try:
                async for texts in self._replay(reader, reader.since):
                    yield b"".join(texts)
            except Unavailable:
                return  # the client comes again, and resumes
        while not reader.ended:
            texts = await reader.take(self._heartbeat_seconds)
            if texts:
                yield b"".join(texts)
            elif not reader.ended:
                yield b": still here\nid: %b\n\n" % self._tickets.write(reader.at).encode()

    def close(self) -> None:
        """End all streams, and take no more."""
        self._closed = True
        for reader in self._all():
            reader.end()
        if self._task is not None:
            self._task.cancel()

    # -- behind it

    def _all(self) -> list[Reader]:
        return [reader for mates in self._readers.values() for reader in mates]

    def _look_at_keys(self) -> None:
        self._keys_due = 0.0
        self._news.set()

    async def _now(self) -> Position:
        """Where a reader begins who has not been here before: at what was settled when he came.

        While a transaction holds an older id open he is kept waiting, but not for long: then he begins before it.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience_seconds
        async with self._db.system_statement() as conn:
            last = await repository.last(conn)
            transaction = await repository.new_transaction(conn)
            while (await repository.look(conn, last, 1)).oldest_running < transaction:
                if loop.time() > until:
                    tail = Position(audit=max(0, last.audit - _TAIL), jobs=max(0, last.jobs - _TAIL))
                    at = Edges().settled(tail, await repository.look(conn, tail, _TAIL))
                    return Position(audit=min(at.audit, last.audit), jobs=min(at.jobs, last.jobs))
                await asyncio.sleep(_TICK_SECONDS / 5)
            return last

    async def _run(self) -> None:
        while True:
            is_more = False
            async with self._looking:
                if not self._readers:
                    self._task = None
                    return
                self._news.clear()
                try:
                    await self._end_fallen()
                    is_more = await self._look()
                except Unavailable:
                    pass  # the database is away; what is missed now is told when it is back
                except Exception:
                    log.exception("stream.failed")
            await asyncio.sleep(_TICK_SECONDS)
            if is_more:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._news.wait()

    async def _look(self) -> bool:
        """Tell what is new; whether there is more of it: not settled yet, or too much for one look."""
        after = self._position
        async with self._db.system_statement() as conn:
            seen = await repository.look(conn, after, _PAGE)
            upto = self._edges.settled(after, seen)
            if self._edges.is_open:
                self._edges.wait_for(await repository.new_transaction(conn))
            is_behind = upto.audit < seen.audit_last or upto.jobs < seen.jobs_last
            if upto == after:
                return is_behind
            teams = list(self._readers)
            acts = await repository.acts(conn, after.audit, upto.audit, teams)
            steps = await repository.steps(conn, after.jobs, upto.jobs, teams)
            ids = to_look_up(acts)
            glimpses = {one.id: one for one in await repository.glimpses(conn, ids)} if ids else {}
        for told in tell(after, acts, steps, glimpses, self._tickets):
            for reader in self._readers.get(told.team_id, ()):
                if not reader.ended:
                    reader.put(told)
        self._position = upto
        for reader in self._all():
            reader.passed(upto)
        return is_behind or upto.audit - after.audit >= _PAGE or upto.jobs - after.jobs >= _PAGE

    async def _end_fallen(self) -> None:
        """End the streams of keys that are revoked, expired or deleted, or whose team is gone."""
        now = asyncio.get_running_loop().time()
        if now < self._keys_due:
            return
        self._keys_due = now + _KEYS_SECONDS  # said before: what changes while we ask is looked at once more
        try:
            async with self._db.system_statement() as conn:
                standing = set(await repository.standing(conn, list({reader.key_id for reader in self._all() if reader.key_id})))
        except BaseException:
            self._keys_due = 0.0
            raise
        for reader in self._all():
            if reader.key_id and reader.key_id not in standing:
                reader.end()

    def _is_out_of_reach(self, since: Position) -> bool:
        """Too far back; or so far ahead of us that the database must be another one than it was, brought back from a backup."""
        ahead = max(since.audit - self._position.audit, since.jobs - self._position.jobs)
        return ahead > self.resume_rows or self._position.jobs - since.jobs > _RESUME_REACH

    async def _is_too_much(self, reader: Reader, since: Position) -> bool:
        async with self._db.tenant(reader.team_id) as conn:
            rows = await repository.rows_of_team(conn, reader.team_id, since, reader.start, self.resume_rows + 1)
        return rows > self.resume_rows

    async def _replay(self, reader: Reader, since: Position) -> AsyncGenerator[list[bytes]]:
        """What came after `since` and before the feed took him in: page by page, in his team's own transaction."""
        at, upto = since, reader.start
        while not reader.ended and (at.audit < upto.audit or at.jobs < upto.jobs):
            told, at = await self._replayed(reader.team_id, at, upto)
            texts = [one.text for one in told if reader.wants(one)]
            if texts:
                yield texts

    async def _replayed(self, team_id: UUID, at: Position, upto: Position) -> tuple[Sequence[Told], Position]:
        async with self._db.tenant(team_id) as conn:
            acts = await repository.acts_of_team(conn, team_id, at.audit, upto.audit, _REPLAY_PAGE)
            steps = await repository.steps_of_team(conn, team_id, at.jobs, upto.jobs, _REPLAY_PAGE)
            ids = to_look_up(acts)
            glimpses = {one.id: one for one in await repository.glimpses_of_team(conn, team_id, ids)} if ids else {}
        told = list(tell(at, acts, steps, glimpses, self._tickets))
        audit = acts[-1].id if len(acts) == _REPLAY_PAGE else max(at.audit, upto.audit)
        jobs = steps[-1].id if len(steps) == _REPLAY_PAGE else max(at.jobs, upto.jobs)
        return told, Position(audit=audit, jobs=jobs)
