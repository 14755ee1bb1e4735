"""LISTEN and NOTIFY: one listening connection per process, its subscribers, and caches that notifications invalidate."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.ids import new_id
from cmserver.base.logs import get_logger
from cmserver.base.metrics import metrics
from cmserver.base.sql import Query
from cmserver.base.timed_connection import TimedConnection, with_time_limits
from cmserver.base.waiting import backoff

log = get_logger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Callback = Callable[[str], None]
"""Takes the payload; empty after a reconnect, when notifications may have been missed."""

PROBE = "cmserver_probe"

_NOTIFY = Query(str, "SELECT pg_notify(%(channel)s, %(payload)s)::text")
_QUIET_CHECK_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 5.0
_PROBE_SECONDS = 2.0


class NotificationListener:
    """Delivers NOTIFY payloads to callbacks. Run `listen` as a task; it reconnects by itself."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._callbacks: dict[str, list[Callback]] = defaultdict(list)
        self.listening = asyncio.Event()
        """Set while the connection is up."""
        self.is_started = False
        """Whether `listen` was called: a process without subscribers does not."""
        self.closing = False
        """Whether the process is stopping."""

    def subscribe(self, channel: str, callback: Callback) -> Callable[[], None]:
        """Call back for each notification of the channel; the returned function unsubscribes."""
        self._callbacks[channel].append(callback)
        return lambda: self._callbacks[channel].remove(callback)

    def deliver(self, channel: str, payload: str) -> None:
        """Call the subscribers of this process, without the database."""
        for callback in list(self._callbacks[channel]):
            try:
                callback(payload)
            except Exception:
                log.exception("listener.failed", channel=channel)

    def close(self) -> None:
        """Wake every subscriber for the last time."""
        self.closing = True
        for channel in list(self._callbacks):
            self.deliver(channel, "")

    async def listen(self, channels: list[str]) -> None:
        """Listen until cancelled."""
        self.is_started = True
        pauses = backoff(0.1, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                async with await TimedConnection.connect(with_time_limits(self._url), autocommit=True) as conn:
                    conn.answer_seconds = _ANSWER_SECONDS
                    for channel in channels:
                        await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    log.debug("listener.back")
                    self.listening.set()
                    pauses = backoff(0.1, _LONGEST_PAUSE_SECONDS)
                    for channel in channels:
                        self.deliver(channel, "")
                    while True:
                        conn.answer_seconds = None
                        async for notify in conn.notifies(timeout=_QUIET_CHECK_SECONDS):
                            metrics().notifications.labels(notify.channel).inc()
                            self.deliver(notify.channel, notify.payload)
                        conn.answer_seconds = _ANSWER_SECONDS
                        await conn.execute("SELECT 1")
            except psycopg.Error as error:
                self.listening.clear()
                log.warning("listener.lost", error=str(error).strip().splitlines()[:1])
                await asyncio.sleep(next(pauses))


class TeamCache(Generic[K, V]):
    """Caches values for `seconds`, or until the channel reports a change of their team.

    The payload of a notification is the team's id; an empty one drops everything. While the process does not listen, the cache
    returns and keeps nothing. `team_of` returns the team on which a value depends, None for one that depends on every team.
    """

    def __init__(
        self,
        listener: NotificationListener,
        channel: str,
        team_of: Callable[[V], UUID | None],
        *,
        seconds: float,
        max_entries: int = 10_000,
    ) -> None:
        self._listening = listener.listening
        self._team_of = team_of
        self._seconds = seconds
        self._max_entries = max_entries
        self._entries: dict[K, tuple[float, V]] = {}
        self._change_count = 0
        listener.subscribe(channel, self._drop)

    def __contains__(self, key: K) -> bool:
        """Whether the key was looked up before, even if its value is too old to use."""
        return key in self._entries

    def get(self, key: K) -> V | None:
        if not self._listening.is_set() or (entry := self._entries.get(key)) is None:
            return None
        until, value = entry
        return value if until > time.monotonic() else None

    async def load(self, key: K, look_up: Callable[[], Awaitable[V]]) -> V:
        """Look the value up and keep it, unless something changed meanwhile."""
        change_count = self._change_count
        value = await look_up()
        if self._listening.is_set() and change_count == self._change_count:
            if len(self._entries) >= self._max_entries:
                self._entries.clear()
            self._entries[key] = (time.monotonic() + self._seconds, value)
        return value

    def _drop(self, team_id: str) -> None:
        self._change_count += 1
        entries = {key: entry for key, entry in self._entries.items() if str(self._team_of(entry[1]) or team_id) != team_id}
        self._entries = entries if team_id else {}


async def check_notifications(db: Db, listener: NotificationListener) -> None:
    """Send a notification and wait for it; Unavailable when it does not arrive. Does nothing unless the process listens."""
    if not listener.is_started:
        return
    payload, arrived = new_id().hex, asyncio.Event()

    def receive(received: str) -> None:
        if received == payload:
            arrived.set()

    unsubscribe = listener.subscribe(PROBE, receive)
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            await listener.listening.wait()
            async with db.system_statement() as conn:
                await _NOTIFY.run(conn, channel=PROBE, payload=payload)
            await arrived.wait()
    except TimeoutError as error:
        raise Unavailable(
            "The database does not deliver NOTIFY to this process. Behind a pooler that shares connections between transactions, "
            "set CMSERVER_DATABASE_POOLING to 'transaction' and CMSERVER_DATABASE_DIRECT_URL to the database itself."
        ) from error
    finally:
        unsubscribe()
