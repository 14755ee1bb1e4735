"""Decides when a provider may be called: its pauses, which all workers share, and what one worker has seen of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.models.calls import repository
from cmserver.models.calls.model import Pause
from cmserver.models.providers.model import MAX_WAIT_SECONDS, ProviderError

_FIRST_PAUSE_SECONDS = 60.0
_FIRST_PAUSE_UNREACHABLE_SECONDS = 15.0
"""A network recovers sooner than a quota."""
_UNREACHABLE_TIMES = 3
_MAX_REMEMBERED_JOBS = 10_000


class ProviderHealth:
    """What one worker has seen of its providers; lost with the process, at the cost of a few calls."""

    def __init__(self) -> None:
        self._answers: Counter[str] = Counter()
        self._unreached: Counter[str] = Counter()
        """Failed attempts to reach the provider in a row."""
        self._failed: dict[tuple[str, UUID], int] = {}
        """The provider's answer count at its first doubtful failure of the job."""
        self._not_before: dict[str, float] = {}
        self._trying: set[str] = set()

    def answered(self, provider: str, job_ids: Sequence[UUID]) -> None:
        self._answers[provider] += 1
        self._unreached[provider] = 0
        for job_id in job_ids:
            self._failed.pop((provider, job_id), None)

    def is_away(self, provider: str) -> bool:
        """Count an unreachable provider; whether it was so three times without an answer in between."""
        self._unreached[provider] += 1
        return self._unreached[provider] >= _UNREACHABLE_TIMES

    def is_about(self, provider: str, job_ids: Sequence[UUID]) -> bool:
        """Whether the failure is of these jobs: they failed before, and others were answered since. The first is noted."""
        answers = self._answers[provider]
        counts = [self._failed.get((provider, job_id)) for job_id in job_ids]
        if len(self._failed) > _MAX_REMEMBERED_JOBS:
            self._failed.clear()
        for job_id, count in zip(job_ids, counts, strict=True):
            if count is None:
                self._failed[provider, job_id] = answers
        earlier = [count for count in counts if count is not None]
        return len(earlier) == len(job_ids) and (len(job_ids) > 1 or earlier[0] < answers)

    def rest(self, provider: str, seconds: float) -> None:
        """Send the provider no request for that long."""
        self._not_before[provider] = max(self._not_before.get(provider, 0), time.monotonic() + seconds)

    def seconds_to_rest(self, provider: str) -> float:
        """How long to send no request; random, so that batches do not return all at once."""
        left = self._not_before.get(provider, 0) - time.monotonic()
        return left * random.uniform(1, 1.1) if left > 0 else 0.0  # noqa: S311 - no secret

    def is_tried(self, provider: str) -> bool:
        """Whether a batch is testing if the provider answers again."""
        return provider in self._trying

    @contextmanager
    def trying(self, provider: str) -> Generator[None]:
        self._trying.add(provider)
        try:
            yield
        finally:
            self._trying.discard(provider)


async def find_active_pause(conn: Conn, provider: str) -> Pause | None:
    return next(
        (pause for pause in await repository.PAUSES.all(conn) if pause.provider == provider and pause.seconds_left > 0), None
    )


async def pause_provider(conn: Conn, provider: str, error: ProviderError) -> tuple[Pause, bool]:
    """Stop calls of the provider for all workers. Returns the pause, and True when it is new, False when one was active."""
    first_seconds = _FIRST_PAUSE_UNREACHABLE_SECONDS if error.out_of_reach else _FIRST_PAUSE_SECONDS
    seconds = min(error.retry_after_seconds or first_seconds, MAX_WAIT_SECONDS)
    new = await repository.pause_provider(conn, provider, error.kind.value, str(error), seconds)
    if new is not None:
        return new, True
    active = await find_active_pause(conn, provider)
    assert active is not None, "the pause that was in the way is locked until we are done"
    return active, False
