"""Slows down failed sign-ins. Counted in each process, and forgotten with it.

Whoever guesses is slowed where they are: by the account and their address, and by the address over all accounts. Guesses from many
addresses are slowed by the account, later and less, except for a browser in which its owner has signed in before: so nobody locks
somebody else out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from cmserver.base.errors import RateLimited

_WINDOW_SECONDS = 3600.0
"""Failures are forgotten so long after the first of them."""
_MAX_ENTRIES = 10_000


class Pace(msgspec.Struct, frozen=True):
    """After `free` failures within an hour each further one doubles the wait, from a second to `max_wait_seconds`."""

    free: int
    max_wait_seconds: int


ONE = Pace(free=5, max_wait_seconds=300)
"""Of an account from one address, or from a browser that is known."""
ADDRESS = Pace(free=20, max_wait_seconds=300)
"""Of an address, over all accounts: more people may share it."""
ACCOUNT = Pace(free=100, max_wait_seconds=60)
"""Of an account, over all addresses; a single one fails less than 30 times an hour."""


class _Failures(msgspec.Struct):
    count: int
    began_at: float
    last_at: float


class SignInAttempts:
    """An attempt counts as failed when it begins, so that those that run at once count, and is taken back when it succeeds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, _Failures] = {}

    def begin(self, paces: Mapping[str, Pace]) -> None:
        """Count an attempt of each of the names; RateLimited, without counting, while one of them has to wait."""
        now = self._clock()
        wait, pace = max(((self._wait(name, pace, now), pace) for name, pace in paces.items()), key=lambda found: found[0])
        if wait > 0:
            message = f"Too many failed attempts. Try again in {math.ceil(wait)} s."
            raise RateLimited(message, wait, limit=pace.free, full_after_seconds=wait)
        if len(self._failures) >= _MAX_ENTRIES:
            self._failures = {name: failures for name, failures in self._failures.items() if not _is_over(failures, now)}
            if len(self._failures) >= _MAX_ENTRIES:
                self._failures.clear()
        for name in paces:
            failures = self._failures.get(name)
            if failures is None or _is_over(failures, now):
                failures = self._failures[name] = _Failures(0, now, now)
            failures.count, failures.last_at = failures.count + 1, now

    def take_back(self, names: Iterable[str]) -> None:
        """Count an attempt of each of the names no longer: it did not fail."""
        for name in names:
            if failures := self._failures.get(name):
                failures.count -= 1

    def forget(self, name: str) -> None:
        """Reset a name after a success."""
        self._failures.pop(name, None)

    def _wait(self, name: str, pace: Pace, now: float) -> float:
        """Seconds until the name may try again."""
        failures = self._failures.get(name)
        if failures is None or failures.count < pace.free or _is_over(failures, now):
            return 0.0
        doublings = min(failures.count - pace.free, pace.max_wait_seconds.bit_length())
        return min(pace.max_wait_seconds, 2.0**doublings) - (now - failures.last_at)


def _is_over(failures: _Failures, now: float) -> bool:
    return now - failures.began_at >= _WINDOW_SECONDS
