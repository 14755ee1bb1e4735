"""Waits for events, runs work periodically or until the process stops, and retries."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from typing import TypeVar

from cmserver.base.errors import Unavailable

T = TypeVar("T")


async def wait_any(*awaited: asyncio.Event | asyncio.Task[object], timeout_seconds: float | None = None) -> None:
    """Return when one of the events is set, one of the tasks has ended, or the time is over."""
    waits = [asyncio.create_task(item.wait()) for item in awaited if isinstance(item, asyncio.Event)]
    tasks = [item for item in awaited if not isinstance(item, asyncio.Event)]
    try:
        await asyncio.wait([*waits, *tasks], timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def run_unless_stopped(stop: asyncio.Event, act: Coroutine[object, object, T]) -> T | None:
    """The result of `act`; None when `stop` came first and `act` was cancelled."""
    task = asyncio.create_task(act)
    try:
        await wait_any(stop, task)
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await task
        return None
    finally:
        task.cancel()


@contextlib.asynccontextmanager
async def run_beside(*acts: Coroutine[object, object, None]) -> AsyncGenerator[list[asyncio.Task[None]]]:
    """The tasks of `acts`, which run beside the block and are cancelled at its end."""
    tasks = [asyncio.create_task(act) for act in acts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_periodically(
    act: Callable[[], Awaitable[object]],
    stop: asyncio.Event,
    *,
    seconds: float | Callable[[], float],
    log_failure: Callable[[Exception], None],
    wake: asyncio.Event | None = None,
    busy_seconds: float | None = None,
) -> None:
    """Run `act` every `seconds` (which may be asked after each round), and when `wake` is set, until `stop` is.

    Unavailable is ignored; other errors go to `log_failure`. When `act` returns True the next round begins after `busy_seconds`.
    """
    events = [stop] if wake is None else [stop, wake]
    while not stop.is_set():
        if wake is not None:
            wake.clear()
        is_busy = False
        try:
            is_busy = await act() is True and busy_seconds is not None
        except Unavailable:
            pass
        except Exception as error:  # noqa: BLE001 - it is logged
            log_failure(error)
        if is_busy:
            await wait_any(stop, timeout_seconds=busy_seconds)
        else:
            await wait_any(*events, timeout_seconds=seconds() if callable(seconds) else seconds)


def backoff(
    first_seconds: float, longest_seconds: float, *, factor: float = 2, total_seconds: float | None = None
) -> Iterator[float]:
    """Pauses between attempts: each `factor` times the one before, until `total_seconds` have passed.

    A pause is cut by up to half, at random, so that processes which lost the same database do not come back at the same moment.
    """
    end = None if total_seconds is None else time.monotonic() + total_seconds
    pause_seconds = first_seconds
    while end is None or time.monotonic() < end:
        yield pause_seconds * random.uniform(0.5, 1)  # noqa: S311 - no secret
        pause_seconds = min(pause_seconds * factor, longest_seconds)


async def retry(act: Callable[[], Awaitable[T]], on: type[Exception] | tuple[type[Exception], ...], pauses: Iterator[float]) -> T:
    """The result of `act`, which is repeated after each such error and the next pause; the last error when no pause is left."""
    while True:
        try:
            return await act()
        except on:
            if (pause_seconds := next(pauses, None)) is None:
                raise
        await asyncio.sleep(pause_seconds)
