"""Connections that are given up when the database falls silent on them.

A route that is lost, a firewall that forgets a connection, or a pooler that is paused tells nobody: without a limit a statement
would wait for its answer for hours, and what it holds in this process with it.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable
from typing import TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

T = TypeVar("T")

_WAIT_INTERVAL = 0.1
"""As psycopg's own."""
_TIME_LIMITS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 5000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
"""In seconds, but `tcp_user_timeout` in milliseconds. Where a host is cut off, no end of a connection arrives."""


def with_time_limits(url: str) -> str:
    """The connection string with limits for making a connection and for the silence of the host, where it has none of its own."""
    return make_conninfo(url, **{name: value for name, value in _TIME_LIMITS.items() if name not in conninfo_to_dict(url)})


class TimedConnection(AsyncConnection[TupleRow]):
    """Waits for an answer for at most `answer_seconds`; then it breaks, as if the database had closed it."""

    answer_seconds: float | None = None
    on_silence: Callable[[], None] | None = None
    """Called when it breaks."""
    _timer: asyncio.TimerHandle | None = None

    async def wait(self, gen: PQGen[T], interval: float = _WAIT_INTERVAL, timeout: float | None = None) -> T:  # noqa: ASYNC109
        if self.answer_seconds is None:
            return await super().wait(gen, interval, timeout)
        self._watch(self.answer_seconds)
        try:
            return await super().wait(gen, interval, timeout)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _watch(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._hang_up, seconds)

    def _hang_up(self, seconds: float) -> None:
        """Shut the socket down: libpq reads the end of the connection, and whoever waits gets an OperationalError."""
        if self.closed:
            return
        with socket.socket(fileno=os.dup(self.pgconn.socket)) as sock:
            if select.select([sock], [], [], 0)[0]:
                self._watch(seconds)  # there is an answer: this process was the one that stood still
                return
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has broken by itself
        if self.on_silence is not None:
            self.on_silence()
