"""The hub: one LISTEN connection per process, and whoever in the process wants to hear of a channel."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

import psycopg
import structlog
from psycopg import AsyncConnection, sql

log = structlog.get_logger()

Heard = Callable[[str], None]
"""Called with the payload; with the empty string after a reconnect, when anything may have been missed."""

_QUIET_CHECK_SECONDS = 30.0
_LONGEST_PAUSE_SECONDS = 5.0


class Hub:
    """Delivers NOTIFY payloads to callbacks. Run `listen` as a task; it reconnects by itself and says so."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._heard: dict[str, list[Heard]] = defaultdict(list)
        self.listening = asyncio.Event()
        """Set while the connection is up."""
        self.closing = False
        """Set when the process is about to stop: nobody waits for news any more."""

    def on(self, channel: str, heard: Heard) -> Callable[[], None]:
        """Hear a channel from now on; the returned function ends that. Channels are known before `listen` starts."""
        self._heard[channel].append(heard)
        return lambda: self._heard[channel].remove(heard)

    def tell(self, channel: str, payload: str) -> None:
        """Deliver within this process, without the database."""
        for heard in list(self._heard[channel]):
            try:
                heard(payload)
            except Exception:
                log.exception("listener.failed", channel=channel)

    def close(self) -> None:
        """Wake up whoever waits, for the last time."""
        self.closing = True
        for channel in list(self._heard):
            self.tell(channel, "")

    async def listen(self, channels: list[str]) -> None:
        """Listen for ever."""
        pause = 0.1
        while True:
            try:
                async with await AsyncConnection.connect(self._url, autocommit=True) as conn:
                    for channel in channels:
                        await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    log.debug("listener.back")
                    self.listening.set()
                    pause = 0.1
                    for channel in channels:
                        self.tell(channel, "")
                    while True:
                        async for notify in conn.notifies(timeout=_QUIET_CHECK_SECONDS):
                            self.tell(notify.channel, notify.payload)
                        await conn.execute("SELECT 1")
            except psycopg.Error as error:
                self.listening.clear()
                log.warning("listener.lost", error=str(error).strip().splitlines()[:1])
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
