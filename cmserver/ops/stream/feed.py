"""Reads new rows of the audit log and the jobs' lifecycle log once per process, for all open streams.

Both logs are durable and the feed writes nothing: a client that reconnects resumes at its position, on any process.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from uuid import UUID

from cmserver.access import announce
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import RateLimited, Unavailable
from cmserver.base.log_position import LogPosition, advance, new_transaction
from cmserver.base.logs import get_logger
from cmserver.base.notifications import NotificationListener
from cmserver.base.waiting import wait_any
from cmserver.generation.job_notifier import DONE, JOBS
from cmserver.ops.stream import repository
from cmserver.ops.stream.model import Name, Position, StreamEvent
from cmserver.ops.stream.reader import Reader
from cmserver.ops.stream.wire import ResetData, StreamCursors, encode_event, encode_events, list_previewed_ids

log = get_logger(__name__)

_TICK_SECONDS = 0.1
_POLL_SECONDS = 1.0
_KEYS_SECONDS = 15.0
_PAGE = 5000
_REPLAY_PAGE = 1000
_TAIL = 1000
_RETRY_MS = (1000, 3000)
"""The clients of a host that has gone come back at different moments."""
_STREAMS_PER_KEY = 50
"""Each page and each follower of a person has one; a twentieth of the connections, so that twenty keys can fill them."""
_HEARTBEAT_SECONDS = 15.0
_RESUME_REACH = 200_000  # ids of all teams: the lifecycle log has no order by team


class Feed:
    """The streams of this process; idle while none is open. `secret` is the installation's and encrypts the event ids."""

    def __init__(
        self,
        db: Db,
        notifications: NotificationListener,
        *,
        secret: bytes,
        streams_per_key: int = _STREAMS_PER_KEY,
        heartbeat_seconds: float = _HEARTBEAT_SECONDS,
    ) -> None:
        self._db = db
        self._cursors = StreamCursors(secret)
        self._heartbeat_seconds = heartbeat_seconds
        self._streams_per_key = streams_per_key
        self._readers: dict[UUID, set[Reader]] = {}
        self._news = asyncio.Event()
        self._keys_due = 0.0
        self._log_lock = asyncio.Lock()
        """Held while new rows are read and sent: no reader joins halfway."""
        self._audit_log: LogPosition = LogPosition()
        self._jobs_log: LogPosition = LogPosition()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.max_start_wait_seconds = 2.0
        """How long a new reader waits for open transactions."""
        self.max_resume_rows = 10_000
        """The most rows of its team that a resuming client is sent; with more, it gets a reset."""
        for channel in (JOBS, DONE, announce.NEWS):
            notifications.subscribe(channel, lambda _: self._news.set())
        notifications.subscribe(announce.CHANNEL, lambda _: self._request_key_check())

    async def join(
        self, principal: Principal, *, project_id: UUID | None, names: frozenset[Name], last_event_id: str | None
    ) -> tuple[Reader, bool]:
        """A reader, to be `leave`d, and whether it misses events since `last_event_id`. RateLimited; Unavailable at a stop."""
        async with self._log_lock:
            if self._closed:
                raise Unavailable("The server is about to stop; connect again in a moment.")
            if sum(reader.caller_id == principal.usage_id for reader in self._all_readers()) >= self._streams_per_key:
                raise RateLimited(
                    f"{self._streams_per_key:,} streams are open, as many as one caller may have.",
                    retry_after_seconds=self._heartbeat_seconds,
                    limit=self._streams_per_key,
                    full_after_seconds=self._heartbeat_seconds,
                )
            if not self._readers:
                start = await self._find_start()
                self._audit_log, self._jobs_log = LogPosition(read_to=start.audit), LogPosition(read_to=start.jobs)
            if self._task is None:
                self._task = asyncio.create_task(self._run())
            since = self._cursors.read(last_event_id) if last_event_id else None
            if since and await self._is_out_of_reach(since):
                since = None
            reader = Reader(
                principal.team_id,
                principal.usage_id,
                principal.key_id,
                principal.user_id,
                project_id,
                names,
                self._position,
                since,
            )
            self._readers.setdefault(principal.team_id, set()).add(reader)
            self._request_key_check()  # the key may have been revoked since it was authenticated
        try:
            if since and await self._exceeds_resume_rows(reader, since):
                reader.since = None
        except BaseException:
            self.leave(reader)
            raise
        return reader, bool(last_event_id) and reader.since is None

    def count_streams(self, principal: Principal) -> int:
        """Return how many streams of the principal's team are open in this process; of its project when its key is bound to one."""
        return sum(principal.sees(reader.project_id) for reader in self._readers.get(principal.team_id, ()))

    def leave(self, reader: Reader) -> None:
        reader.end()
        team_readers = self._readers.get(reader.team_id, set())
        team_readers.discard(reader)
        if not team_readers:
            self._readers.pop(reader.team_id, None)

    async def read(self, reader: Reader, *, lost: bool) -> AsyncGenerator[bytes]:
        """Yield the text of the stream until the reader is ended; `lost` sends a reset first."""
        # An id without data is no event, but moves the client's Last-Event-ID: a client without events can resume, too.
        start_id = self._cursors.write(reader.since or reader.start)
        yield b"retry: %d\nid: %b\n\n" % (random.randint(*_RETRY_MS), start_id.encode())  # noqa: S311 - no secret
        if lost:
            reset = ResetData(reason="Events after this id are no longer available. Reload, then resume from the new id.")
            yield encode_event("reset", start_id, reset)
        if reader.since:
            try:
                async for texts in self._replay(reader, reader.since):
                    yield b"".join(texts)
            except Unavailable:
                return  # the client reconnects and resumes
        while not reader.ended:
            texts = await reader.take(self._heartbeat_seconds)
            if texts:
                yield b"".join(texts)
            elif not reader.ended:
                yield b": still here\nid: %b\n\n" % self._cursors.write(reader.at).encode()

    def close(self) -> None:
        """End all streams and refuse new ones."""
        self._closed = True
        for reader in self._all_readers():
            reader.end()
        if self._task is not None:
            self._task.cancel()

    @property
    def _position(self) -> Position:
        return Position(audit=self._audit_log.read_to, jobs=self._jobs_log.read_to)

    def _all_readers(self) -> list[Reader]:
        return [reader for team_readers in self._readers.values() for reader in team_readers]

    def _request_key_check(self) -> None:
        self._keys_due = 0.0
        self._news.set()

    async def _find_start(self) -> Position:
        """The logs' end, for which lower ids are awaited for `max_start_wait_seconds`; then the position before them."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.max_start_wait_seconds
        async with self._db.system_statement() as conn:
            last = await repository.last(conn)
            transaction = await new_transaction(conn)
            while (await repository.look(conn, last, 1)).audit.oldest_running < transaction:
                if loop.time() > deadline:
                    tail = Position(audit=max(0, last.audit - _TAIL), jobs=max(0, last.jobs - _TAIL))
                    looks = await repository.look(conn, tail, _TAIL)
                    audit, jobs = (
                        LogPosition(read_to=tail.audit).advance(looks.audit),
                        LogPosition(read_to=tail.jobs).advance(looks.jobs),
                    )
                    return Position(audit=min(audit.read_to, last.audit), jobs=min(jobs.read_to, last.jobs))
                await asyncio.sleep(_TICK_SECONDS / 5)
            return last

    async def _run(self) -> None:
        """Send new rows to the readers, once a tick or when notified, until there are no readers."""
        was_away = False
        while True:
            is_more = False
            async with self._log_lock:
                if not self._readers:
                    self._task = None
                    return
                self._news.clear()
                try:
                    if was_away:
                        await self._end_streams_of_lost_rows()
                    await self._end_invalid_streams()
                    is_more = await self._send_new_rows()
                    was_away = False
                except Unavailable:
                    was_away = True  # the rows are sent when the database is back
                except Exception:
                    log.exception("stream.failed")
            await asyncio.sleep(_TICK_SECONDS)
            if is_more:
                continue
            await wait_any(self._news, timeout_seconds=_POLL_SECONDS)

    async def _send_new_rows(self) -> bool:
        """Give new rows to the readers as events. Returns whether more rows are waiting: behind a gap, or behind a full page."""
        after = self._position
        async with self._db.system_statement() as conn:
            looks = await repository.look(conn, after, _PAGE)
            audit_log = await advance(conn, self._audit_log, looks.audit)
            jobs_log = await advance(conn, self._jobs_log, looks.jobs)
            upto = Position(audit=audit_log.read_to, jobs=jobs_log.read_to)
            is_behind = upto.audit < looks.audit.last_id or upto.jobs < looks.jobs.last_id
            if upto == after:
                self._audit_log, self._jobs_log = audit_log, jobs_log
                return is_behind
            teams = list(self._readers)
            audit_rows = await repository.audit_rows(conn, after.audit, upto.audit, teams)
            job_steps = await repository.job_steps(conn, after.jobs, upto.jobs, teams)
            ids = list_previewed_ids(audit_rows)
            previews = {preview.id: preview for preview in await repository.previews(conn, ids)} if ids else {}
        for stream_event in encode_events(after, audit_rows, job_steps, previews, self._cursors):
            for reader in self._readers.get(stream_event.team_id, ()):
                if not reader.ended:
                    reader.put(stream_event)
        self._audit_log, self._jobs_log = audit_log, jobs_log
        for reader in self._all_readers():
            reader.advance(upto)
        return is_behind or upto.audit - after.audit >= _PAGE or upto.jobs - after.jobs >= _PAGE

    async def _end_streams_of_lost_rows(self) -> None:
        """End all streams when rows are gone that were sent: an asynchronous standby without them has become the primary."""
        async with self._db.system_statement() as conn:
            last = await repository.last(conn)
        if last.audit < self._position.audit or last.jobs < self._position.jobs:
            self._audit_log, self._jobs_log = LogPosition(read_to=last.audit), LogPosition(read_to=last.jobs)
            for reader in self._all_readers():
                reader.end()

    async def _end_invalid_streams(self) -> None:
        """End the streams of keys that are revoked, expired or deleted, or whose team is archived."""
        now = asyncio.get_running_loop().time()
        if now < self._keys_due:
            return
        self._keys_due = now + _KEYS_SECONDS  # set before the query: a change meanwhile causes another check
        key_ids = {reader.key_id for reader in self._all_readers() if reader.key_id}
        try:
            async with self._db.system_statement() as conn:
                valid_keys = set(await repository.valid_keys(conn, list(key_ids)))
        except BaseException:
            self._keys_due = 0.0
            raise
        for reader in self._all_readers():
            if reader.key_id and reader.key_id not in valid_keys:
                reader.end()

    async def _is_out_of_reach(self, since: Position) -> bool:
        """Whether `since` is too far back, or beyond the end of a log: then the database was restored, or lost its last rows."""
        if since.audit > self._position.audit or since.jobs > self._position.jobs:  # another process may be ahead
            async with self._db.system_statement() as conn:
                last = await repository.last(conn)
            if since.audit > last.audit or since.jobs > last.jobs:
                return True
        return self._position.jobs - since.jobs > _RESUME_REACH

    async def _exceeds_resume_rows(self, reader: Reader, since: Position) -> bool:
        async with self._db.tenant(reader.team_id) as conn:
            row_count = await repository.count_team_rows(conn, reader.team_id, since, reader.start, self.max_resume_rows + 1)
        return row_count > self.max_resume_rows

    async def _replay(self, reader: Reader, since: Position) -> AsyncGenerator[list[bytes]]:
        """Yield the texts of the events between `since` and the reader's start, page by page, read as its team."""
        at, upto = since, reader.start
        while not reader.ended and (at.audit < upto.audit or at.jobs < upto.jobs):
            page, at = await self._read_replay_page(reader.team_id, at, upto)
            texts = [stream_event.text for stream_event in page if reader.wants(stream_event)]
            if texts:
                yield texts

    async def _read_replay_page(self, team_id: UUID, at: Position, upto: Position) -> tuple[Sequence[StreamEvent], Position]:
        """The next events up to `upto`, and the position after them."""
        async with self._db.tenant(team_id) as conn:
            audit_rows = await repository.team_audit_rows(conn, team_id, at.audit, upto.audit, _REPLAY_PAGE)
            job_steps = await repository.team_job_steps(conn, team_id, at.jobs, upto.jobs, _REPLAY_PAGE)
            ids = list_previewed_ids(audit_rows)
            previews = {preview.id: preview for preview in await repository.team_previews(conn, team_id, ids)} if ids else {}
        page = list(encode_events(at, audit_rows, job_steps, previews, self._cursors))
        audit = audit_rows[-1].id if len(audit_rows) == _REPLAY_PAGE else max(at.audit, upto.audit)
        jobs = job_steps[-1].id if len(job_steps) == _REPLAY_PAGE else max(at.jobs, upto.jobs)
        return page, Position(audit=audit, jobs=jobs)
