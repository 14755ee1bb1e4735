"""Slows down failed sign-ins, by account and by address. Counted in each process, and forgotten with it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from cmserver.base.errors import RateLimited

FREE = 5
"""Failures before the first wait."""
MAX_WAIT_SECONDS = 300
_FORGET_SECONDS = 3600.0
_MAX_ENTRIES = 10_000


class _Failures(msgspec.Struct):
    """Failures of an account or an address."""

    count: int
    last_at: float


class SignInAttempts:
    """After five failures of an account or an address each further one doubles the wait, up to five minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, _Failures] = {}

    def check(self, *names: str) -> None:
        """RateLimited while one of the names (an account, an address) has to wait."""
        now = self._clock()
        wait = max((self._wait(name, now) for name in names), default=0.0)
        if wait > 0:
            raise RateLimited(
                f"Too many failed attempts. Try again in {math.ceil(wait)} s.", wait, limit=FREE, full_after_seconds=wait
            )

    def count_failure(self, *names: str) -> None:
        """Note a failure of each of the names."""
        now = self._clock()
        if len(self._failures) >= _MAX_ENTRIES:
            self._failures = {name: failures for name, failures in self._failures.items() if self._wait(name, now) > 0}
            if len(self._failures) >= _MAX_ENTRIES:
                self._failures.clear()
        for name in names:
            known = self._failures.get(name)
            count = known.count if known is not None and now - known.last_at < _FORGET_SECONDS else 0
            self._failures[name] = _Failures(count + 1, now)

    def forget(self, name: str) -> None:
        """Reset a name after a success."""
        self._failures.pop(name, None)

    def _wait(self, name: str, now: float) -> float:
        """Seconds until the name may try again."""
        failures = self._failures.get(name)
        if failures is None or failures.count < FREE:
            return 0.0
        return min(MAX_WAIT_SECONDS, 2.0 ** (failures.count - FREE)) - (now - failures.last_at)
