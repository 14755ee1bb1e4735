"""Counts wrong keys by address, and bounds the look-ups that they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from cmserver.access.model import StoredKey
from cmserver.base.logs import get_logger

log = get_logger(__name__)

WINDOW_SECONDS = 60.0
PER_ADDRESS = 10
IN_ALL = 1_000
"""Wrong keys in a window, of one address and of all, after which unknown keys share their look-ups."""
_ADDRESSES = 10_000
_LOGGED = 100
_OTHERS = "others"
SHARED_SECONDS = 0.25
_SHARED_KEYS = 1_000


class WrongKeys:
    """Counts wrong keys by address, in windows of a minute, and logs a line for each address and window. One per process.

    An address's first wrong key is logged at once, the count of the others when the window ends. Beyond a hundred addresses in a
    window the others share a line; beyond ten thousand they are counted as one.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._unlogged: dict[str, int] = {}
        self._total = 0
        self._seen_before: frozenset[str] = frozenset()
        self._timer: asyncio.TimerHandle | None = None

    def are_too_many(self, address: str) -> bool:
        """Whether unknown keys from that address have to share their look-ups."""
        return self._total >= IN_ALL or self._counts.get(self._counted_as(address), 0) >= PER_ADDRESS

    def count(self, address: str) -> None:
        """Count a wrong key from that address."""
        address = self._counted_as(address)
        is_new = address not in self._counts
        self._counts[address] = self._counts.get(address, 0) + 1
        self._total += 1
        if is_new and address not in self._seen_before and len(self._counts) <= _LOGGED:
            _log(address, 1)
        else:
            self._unlogged[address] = self._unlogged.get(address, 0) + 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_SECONDS, self.end_window)

    def end_window(self) -> None:
        """Log the remaining counts and start the next window, if this one had wrong keys."""
        if self._timer is not None:
            self._timer.cancel()
        counts = sorted(self._unlogged.items(), key=lambda item: -item[1])
        for address, count in counts[:_LOGGED]:
            _log(address, count)
        if unlisted := counts[_LOGGED:]:
            log.info("access.denied", reason="unknown_key", addresses=len(unlisted), count=sum(count for _, count in unlisted))
        self._seen_before = frozenset(self._counts)
        self._timer = asyncio.get_running_loop().call_later(WINDOW_SECONDS, self.end_window) if self._counts else None
        self._counts, self._unlogged, self._total = {}, {}, 0

    def _counted_as(self, address: str) -> str:
        """The address; or the common name of all further ones when too many are counted already."""
        return address if address in self._counts or len(self._counts) < _ADDRESSES else _OTHERS


class SharedLookup:
    """Looks up keys of addresses that sent too many wrong ones, four times a second with one query: a valid key only waits."""

    def __init__(self, find: Callable[[Sequence[str]], Awaitable[Mapping[str, StoredKey]]]) -> None:
        self._find = find
        self._waiting: dict[str, asyncio.Future[StoredKey | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, text: str) -> StoredKey | None:
        """The key, or None. Raises what the database raises."""
        future = self._waiting.get(text)
        if future is None:
            future = self._waiting[text] = asyncio.get_running_loop().create_future()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_up())
        return await asyncio.shield(future)  # other requests may wait for the same future

    async def _look_up(self) -> None:
        """Look up the waiting keys in batches until none waits."""
        while self._waiting:
            await asyncio.sleep(SHARED_SECONDS)
            texts = list(self._waiting)[:_SHARED_KEYS]
            futures = {text: self._waiting.pop(text) for text in texts}
            try:
                keys = await self._find(texts)
            except Exception as error:  # noqa: BLE001 - passed to the waiting requests
                for future in futures.values():
                    future.set_exception(error)
                    future.exception()  # marks it as retrieved when nobody waits any more
            else:
                for text, future in futures.items():
                    future.set_result(keys.get(text))


def _log(address: str, count: int) -> None:
    log.info("access.denied", reason="unknown_key", address=address, count=count)
