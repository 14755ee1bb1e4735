"""Whether work grows faster than what it is given. For tests that are marked `speed`: they look at the clock of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

SMALL, FACTOR = 6_000, 8
"""Characters, and how many times as many they are compared with."""
MOST = 3 * FACTOR
"""Squared work would be 64."""
TOO_SHORT_SECONDS = 0.0005


def cpu_seconds(work: Callable[[], object]) -> float:
    """The least of several: other processes only add to it."""
    times: list[float] = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def grows_too_fast(work: Callable[[str], object], unit: str) -> bool:
    """Whether the work on texts that repeat the unit takes more than its share for one that is `FACTOR` times as long."""
    return is_slow(*(partial(work, repeat(unit, size)) for size in (SMALL, SMALL * FACTOR)))


def repeat(unit: str, size: int) -> str:
    return unit * (size // len(unit))


def is_slow(small: Callable[[], object], large: Callable[[], object]) -> bool:
    return cpu_seconds(large) >= MOST * max(cpu_seconds(small), TOO_SHORT_SECONDS)
