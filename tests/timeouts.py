"""Time-outs for tests, scaled by how slow the machine is.

A time-out ends a test that hangs; it says nothing about speed. What takes a second on a quiet machine may take ten beside a
compiler. So a time-out is given in seconds of a quiet machine and multiplied by the slowness of this one, which is measured when
the tests start and again later.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any

QUIET_WORK_SECONDS = 0.05
QUIET_STARTS_SECONDS = 0.015
"""How long `_work` and the start of five processes take on a quiet machine."""
MAX_SLOWNESS = 10.0
"""A limit, so that a test that hangs still ends."""
_FRESH_SECONDS = 5.0


class SlownessGauge:
    """Measures the slowness, and keeps the result for five seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, measure: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._measure = measure or measure_slowness
        self._slowness = 1.0
        self._measured_at = float("-inf")

    def slowness(self) -> float:
        """How many times as long as on a quiet machine things take; 1 at the least."""
        if self._clock() >= self._measured_at + _FRESH_SECONDS:
            self._slowness = min(MAX_SLOWNESS, max(1.0, self._measure()))
            self._measured_at = self._clock()
        return self._slowness


class Deadline:
    """For loops that poll: it measures again before it ends, in case the machine has become slower since."""

    def __init__(self, seconds: float, gauge: SlownessGauge | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._gauge = gauge or _GAUGE
        self._clock = clock
        self._began = clock()
        self._factor = 1.0

    @property
    def is_over(self) -> bool:
        if self.elapsed < self._seconds * self._factor:
            return False
        self._factor = max(self._factor, self._gauge.slowness())
        return self.elapsed >= self._seconds * self._factor

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began


async def until(what: str, look: Callable[[], Awaitable[object] | object], running: asyncio.Future[Any] | None = None) -> None:
    """Until `look` finds something; AssertionError naming `what` when it takes too long, or when what is `running` ends first."""
    deadline = Deadline(ENOUGH_SECONDS)
    while True:
        found = look()
        if await found if inspect.isawaitable(found) else found:
            return
        assert not deadline.is_over, f"waited {deadline.elapsed:.0f} s in vain for {what}"
        assert running is None or not running.done(), f"it ended before {what}"
        await asyncio.sleep(0.005)


def scaled(seconds: float) -> float:
    """The time-out for what takes at most so many seconds on a quiet machine."""
    return seconds * _GAUGE.slowness()


def measure_slowness() -> float:
    """By the wall clock: work for the processor, and the start of processes. The worse of the two."""
    began = time.monotonic()
    _work()
    worked = time.monotonic()
    for _ in range(5):
        subprocess.run(["/bin/sh", "-c", ":"], check=True)
    return max((worked - began) / QUIET_WORK_SECONDS, (time.monotonic() - worked) / QUIET_STARTS_SECONDS)


def _work() -> None:
    total = 0
    for number in range(400_000):
        total += number * number % 7


_GAUGE = SlownessGauge()

ENOUGH_SECONDS = max(60.0, scaled(30))
"""For whatever happens within one process: a minute at least."""
