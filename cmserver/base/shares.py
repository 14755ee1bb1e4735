"""Who a request is for, so that nobody takes all of what everybody needs: threads, and connections to the database."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple
from uuid import UUID

from cmserver.base.errors import Unavailable

_KEY_IS_BUSY = "Earlier requests with this key are still running and use its share of the database. Try again when they are done."
_SERVER_IS_BUSY = "The database is busy with earlier requests. Try again in a moment."


class Share(NamedTuple):
    """Whose share of a resource a request uses, and of which part of it."""

    holder: UUID | None
    """As requests are counted: a key with all that were rotated from it, a person, or all guests. None for an operator."""
    kind: Literal["ingest", "read"]
    team_id: UUID | None = None
    """The holder's."""


_current: ContextVar[Share | None] = ContextVar("share", default=None)


def set_share(share: Share | None) -> None:
    """Set the share that the running request uses: each request is a task, and so a context, of its own."""
    _current.set(share)


def current_share() -> Share | None:
    """The share of the running request; None for work that no request asked for."""
    return _current.get()


class ConnectionShares:
    """Bounds how many of a pool's connections requests use: three quarters for reads, as many for ingest, half for one holder."""

    def __init__(self, size: int) -> None:
        self._kind_limit = max(1, size - size // 4)
        self._holder_limit = max(1, (size + 1) // 2)
        self._held_by_kind: Counter[str] = Counter()
        self._held: Counter[Share] = Counter()
        self._waiting: dict[asyncio.Future[None], Share] = {}

    @asynccontextmanager
    async def hold(self, timeout_seconds: float) -> AsyncGenerator[None]:
        """Use a connection of the request's share; Unavailable when none is free in time. What it nests counts as one."""
        share = current_share()
        if share is None:
            yield
            return
        await self._take(share, timeout_seconds)
        set_share(None)
        try:
            yield
        finally:
            set_share(share)
            self._release(share)

    async def _take(self, share: Share, timeout_seconds: float) -> None:
        if self._is_free(share):
            self._count(share, 1)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = share
        try:
            async with asyncio.timeout(timeout_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._release(share)
            if isinstance(error, TimeoutError):
                is_own = self._held[share] >= self._holder_limit
                raise Unavailable(_KEY_IS_BUSY if is_own else _SERVER_IS_BUSY) from None
            raise
        finally:
            self._waiting.pop(turn, None)

    def _release(self, share: Share) -> None:
        """Give the place to whoever waits and holds least, the first of them first."""
        self._count(share, -1)
        turns = [turn for turn, waiting in self._waiting.items() if not turn.done() and self._is_free(waiting)]
        if turns:
            turn = min(turns, key=lambda turn: self._held[self._waiting[turn]])
            self._count(self._waiting[turn], 1)
            turn.set_result(None)

    def _is_free(self, share: Share) -> bool:
        return self._held_by_kind[share.kind] < self._kind_limit and self._held[share] < self._holder_limit

    def _count(self, share: Share, change: int) -> None:
        self._held_by_kind[share.kind] += change
        self._held[share] += change
        if not self._held[share]:
            del self._held[share]
