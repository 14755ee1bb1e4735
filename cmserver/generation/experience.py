"""What a worker has seen of its providers: whom a failure is about, and when somebody may be asked again."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from uuid import UUID

from cmserver.generation.model import HeldJob

_OFTEN = 3
_REMEMBERED = 10_000


class Experience:
    """One per worker. A new one knows nothing yet, which costs a pause, or a few calls, more."""

    def __init__(self) -> None:
        self._answers: Counter[str] = Counter()
        self._unreached: Counter[str] = Counter()
        """In a row."""
        self._failed: dict[tuple[str, UUID], int] = {}
        """How many answers the provider had given when it first failed the job in a way that could be about the job."""
        self._not_before: dict[str, float] = {}
        self._trying: set[str] = set()

    def answered(self, provider: str, jobs: Sequence[HeldJob]) -> None:
        self._answers[provider] += 1
        self._unreached[provider] = 0
        for job in jobs:
            self._failed.pop((provider, job.id), None)

    def is_away(self, provider: str) -> bool:
        """Whether the provider, which was out of reach just now, has been so several times without an answer in between."""
        self._unreached[provider] += 1
        return self._unreached[provider] >= _OFTEN

    def is_about(self, provider: str, jobs: Sequence[HeldJob]) -> bool:
        """Whether a failure is about these jobs: the provider has failed them before, and has answered others since.

        Of several it is to be found out by asking for them in parts. What is seen for the first time is remembered.
        """
        now = self._answers[provider]
        before = [self._failed.get((provider, job.id)) for job in jobs]
        if len(self._failed) > _REMEMBERED:
            self._failed.clear()
        for job, known in zip(jobs, before, strict=True):
            if known is None:
                self._failed[provider, job.id] = now
        known = [count for count in before if count is not None]
        return len(known) == len(jobs) and (len(jobs) > 1 or known[0] < now)

    def rest(self, provider: str, seconds: float) -> None:
        """It wants no request for so long."""
        self._not_before[provider] = max(self._not_before.get(provider, 0), time.monotonic() + seconds)

    def rests(self, provider: str) -> float:
        """How many seconds more it wants no request; a little longer for each who asks, or all would come back at once."""
        left = self._not_before.get(provider, 0) - time.monotonic()
        return left * random.uniform(1, 1.1) if left > 0 else 0.0  # noqa: S311 - no secret

    def is_tried(self, provider: str) -> bool:
        """Whether somebody is just finding out if it answers again."""
        return provider in self._trying

    @contextmanager
    def trying(self, provider: str) -> Generator[None]:
        self._trying.add(provider)
        try:
            yield
        finally:
            self._trying.discard(provider)
