"""One sweep: takes what is kept no longer, in short transactions, up to a budget of rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import TypeVar

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.follow import read_position
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.pins.guard import describe_loss, report_lost
from cmserver.pins.model import PinResult
from cmserver.retention import repository
from cmserver.retention.model import KINDS, OBSERVATION_KINDS, Kind, LogPage, RetentionDefaults, RetentionReport, ShortestDays

T = TypeVar("T")

log = get_logger(__name__)

_DEFAULTS = RetentionDefaults()
BATCH_ROWS = 1_000
MAX_ROWS = 50_000
"""Of one sweep, every five minutes: some ten seconds of work."""
_MAX_PAGES = 100
"""Batches of a log that a run looks at, whether or not anything in them is old enough; the next run goes on there."""
_LONGEST_PAUSE_SECONDS = 1.0


async def sweep(db: Db, defaults: RetentionDefaults = _DEFAULTS, *, max_rows: int = MAX_ROWS) -> RetentionReport:
    """Take up to `max_rows` rows. Two sweeps at once share the work; a backup that runs stops them."""
    run = _Run(db, defaults, max_rows)
    since = await db.in_system(repository.CLOCK.one)
    shortest = await db.in_system(lambda conn: repository.shortest_days(conn, run.defaults))
    taken = dict.fromkeys(KINDS, 0)
    for kind, days in _kept_for(shortest).items():
        taken[kind] = await (run.take_log(kind, days) if kind in repository.PASSES else run.take_rows(kind))
        if run.is_held_off:
            log.info("retention.held_off")
            break
    lost = await _report_pins(db, since) if any(taken[kind] for kind in OBSERVATION_KINDS) else []
    if any(taken.values()):
        log.info("retention.swept", **{kind: count for kind, count in taken.items() if count})
    is_complete = not run.is_spent and not run.is_held_off
    return RetentionReport(dry_run=False, is_complete=is_complete, backup_runs=run.is_held_off, counts=taken, lost_pins=lost)


async def _report_pins(db: Db, since: datetime) -> list[str]:
    """What the teams whose observations were taken since then have pinned, and lost."""
    lost: list[PinResult] = []
    for team_id in await db.in_system(lambda conn: repository.teams_taken_from(conn, list(OBSERVATION_KINDS), since)):
        lost += await db.in_system(partial(report_lost, principal=Principal.of_server(team_id), cause="retention"))
    return [describe_loss(result) for result in lost]


async def count_due(db: Db, defaults: RetentionDefaults = _DEFAULTS) -> RetentionReport:
    """How many rows sweeps would take now; changes nothing."""
    counts: dict[Kind, int] = {}
    for kind in KINDS:
        async with db.system() as conn:
            counts[kind] = await repository.count(conn, kind, defaults)
    async with db.system() as conn:
        backup_runs = await repository.IS_HELD_OFF.one(conn)
    return RetentionReport(dry_run=True, is_complete=True, backup_runs=backup_runs, counts=counts)


def _kept_for(shortest: ShortestDays) -> dict[Kind, int]:
    """The kinds in the order in which they are taken, each with the shortest time that somebody keeps it, in days.

    What everybody keeps for good is left out, so that nothing of it is read. The operator's own times are looked at in any case.
    """
    kept_for: dict[Kind, int | None] = {
        "aged_observations": shortest.observations,
        "expired_observations": 0,
        "superseded_observations": 0,
        "event_payloads": shortest.events,
        "event_rows": 0,
        "job_log": shortest.job_log,
        "receipts": shortest.receipts,
        "telemetry": 0,
        "steward_jobs": 0,
        "audit_log": shortest.audit,
    }
    return {kind: days for kind, days in kept_for.items() if days is not None}


class _Run:
    """A sweep under way, and how many rows it may still take."""

    def __init__(self, db: Db, defaults: RetentionDefaults, rows: int) -> None:
        self.defaults = defaults
        self.is_spent = False
        self.is_held_off = False
        self._db = db
        self._rows = rows

    async def take_rows(self, kind: Kind) -> int:
        """Take batches until one is not full; returns the rows that were taken."""
        taken = 0

        async def take(conn: Conn) -> int:
            return await repository.take(conn, kind, self.defaults, min(BATCH_ROWS, self._rows))

        while limit := min(BATCH_ROWS, self._rows):
            count = await self._in_batch(take)
            if count is None:
                return taken
            self._rows -= count
            taken += count
            if count < limit:
                return taken
        self.is_spent = True
        return taken

    async def take_log(self, kind: Kind, shortest_days: int) -> int:
        """Look at pages of a log from where the last run stopped, once around at most; returns the rows that were taken."""
        start = (await self._db.in_system(lambda conn: read_position(conn, repository.PASSES[kind]))).read_to
        taken, has_wrapped = 0, False

        async def take(conn: Conn) -> LogPage:
            limit = min(BATCH_ROWS, self._rows)
            return await repository.take_page(conn, kind, self.defaults, shortest_days=shortest_days, limit=limit)

        for _ in range(_MAX_PAGES):
            if not self._rows:
                break
            page = await self._in_batch(take)
            if page is None:
                return taken
            self._rows -= min(page.row_count, self._rows)  # a page of events may have some more
            taken += page.row_count
            has_wrapped = has_wrapped or page.last_id is None
            if has_wrapped and (page.last_id or 0) >= start:
                return taken
        self.is_spent = True
        return taken

    async def _in_batch(self, take: Callable[[Conn], Awaitable[T]]) -> T | None:
        """Run `take` in a transaction of its own, then leave the disk to others for as long; None while a backup runs."""

        async def act(conn: Conn) -> T | None:
            return None if await repository.IS_HELD_OFF.one(conn) else await take(conn)

        started_at = time.monotonic()
        result = await self._db.in_system(act)
        self.is_held_off = result is None
        await asyncio.sleep(min(time.monotonic() - started_at, _LONGEST_PAUSE_SECONDS))
        return result
