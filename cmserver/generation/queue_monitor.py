"""Reads the queue while something happens in it, warns about its age and length, and keeps the sums for others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from cmserver.access import announce
from cmserver.base.db import Db
from cmserver.base.logs import get_logger
from cmserver.base.notifications import NotificationListener
from cmserver.base.waiting import run_periodically
from cmserver.generation.job_notifier import DONE, JOBS
from cmserver.generation.operate import repository as queue
from cmserver.generation.operate.model import QueueCounts, QueueDelay, QueueLength
from cmserver.sessions import repository as sessions

log = get_logger(__name__)

LOOK_SECONDS = 15.0
QUIET_LOOK_SECONDS = 60.0
"""While the queue is empty and no notification comes."""
_WARN_EVERY_SECONDS = 60.0
_MAX_NAMED_TEAMS = 100
WARNING_SECONDS = 300.0
"""A due job that has waited for longer is warned of: ten bursts of a busy session."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the whole installation at the last look."""

    queued: int
    processing: int
    active_sessions: int


class QueueMonitor:
    """Warns once a minute of a job that has been due for `warning_seconds`, and of a team with more than `warning_jobs`.

    `warns` is False where another process of the same server logs the warnings.
    """

    def __init__(
        self,
        db: Db,
        *,
        clock: Callable[[], float] = time.monotonic,
        warns: bool = True,
        warning_seconds: float = WARNING_SECONDS,
        warning_jobs: int = 2_000,
    ) -> None:
        self._db = db
        self._warns = warns
        self.warning_seconds = warning_seconds
        self.warning_jobs = warning_jobs
        self.clock = clock
        self._warned_at: dict[str, float] = {}
        self.load: Load | None = None
        """None until the first look."""
        self._is_changed = True
        self._looked_at = 0.0

    async def run(self, stop: asyncio.Event, notifications: NotificationListener) -> None:
        """Look until `stop` is set; also in processes without a worker, as none may be running."""

        def note_change(_payload: str) -> None:
            self._is_changed = True

        unsubscribes = [notifications.subscribe(channel, note_change) for channel in (JOBS, DONE, announce.NEWS)]
        try:
            await run_periodically(
                self.look_if_due,
                stop,
                seconds=LOOK_SECONDS,
                log_failure=lambda error: log.error("queue.not_watched", exc_info=error),
            )
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()

    async def look_if_due(self) -> None:
        """Look unless the queue was empty at the last look, some seconds ago, and no notification has come since."""
        is_busy = self.load is None or self.load.queued + self.load.processing > 0
        if is_busy or self._is_changed or self.clock() - self._looked_at >= QUIET_LOOK_SECONDS:
            self._is_changed = False
            try:
                await self.look()
            except Exception:
                self._is_changed = True
                raise
            self._looked_at = self.clock()

    async def look(self) -> None:
        """Read the queue's lengths, and warn of teams that are over a limit."""
        async with self._db.system() as conn:
            lengths = await queue.QUEUE_LENGTHS.all(conn)
            delays = await queue.queue_delays(conn, self.warning_seconds) if lengths else []
            active_sessions = await sessions.OPEN_COUNT_OF_ALL.one(conn)
        self.load = Load(
            queued=sum(length.queued for length in lengths),
            processing=sum(length.processing for length in lengths),
            active_sessions=active_sessions,
        )
        if not self._warns:
            return
        long = [length for length in lengths if length.queued > self.warning_jobs]
        if delays and self._is_time_for("age"):
            oldest = round(delays[0].oldest_waiting_seconds)
            log.warning("queue.behind", oldest_waiting_seconds=oldest, teams=_names(delays))
        if long and self._is_time_for("length"):
            log.warning("queue.long", queued=long[0].queued, teams=_names(long))

    def warning(self, counts: QueueCounts) -> str | None:
        """What is wrong with a queue of those counts, in sentences, or None."""
        oldest, queued = counts.oldest_waiting_seconds, counts.waiting + counts.delayed + counts.held
        sentences: list[str] = []
        if oldest is not None and oldest > self.warning_seconds:
            sentences.append(f"The oldest waiting job has waited for {oldest:.0f} s, longer than {self.warning_seconds:g} s.")
        if queued > self.warning_jobs:
            sentences.append(f"{queued:,} jobs are queued, more than {self.warning_jobs:,}.")
        return " ".join([*sentences, "See whether workers run, and what they log."]) if sentences else None

    def _is_time_for(self, reason: str) -> bool:
        """Whether a warning for that reason is due (one a minute); if so, records it."""
        now = self.clock()
        if now - self._warned_at.get(reason, -_WARN_EVERY_SECONDS) < _WARN_EVERY_SECONDS:
            return False
        self._warned_at[reason] = now
        return True


def _names(rows: Sequence[QueueDelay | QueueLength]) -> list[str]:
    return [row.team for row in rows[:_MAX_NAMED_TEAMS]]
