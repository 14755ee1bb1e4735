"""Looking at jobs: a page of them, one of them, what came of it, its life, what it is made of; and whether the queue is behind."""

from __future__ import annotations

import msgspec

from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.generation.operate import repository
from cmserver.generation.operate.model import Filter, KnownJob, QueueCounts, Step
from cmserver.observations import repository as observations

NO_SUCH = "There is no such job."
COUNTED_MOST = 10_000
"""A list's total is counted up to here: to count a million takes longer than anybody wants to wait."""
OFFSET_MOST = 10_000


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest first, and the cursor of the next page when there is one. `total` is COUNTED_MOST when it is capped."""

    jobs: list[KnownJob]
    total: int
    total_is_capped: bool
    next_cursor: str | None


class JobStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is, and the numbers of what came of it, where it has completed."""

    job: KnownJob
    numbers: list[int]


async def page(conn: Conn, which: Filter, *, limit: int, offset: int = 0, cursor: str | None = None) -> Page:
    """The newest jobs from the cursor on, or from the offset."""
    if offset > OFFSET_MOST:
        raise Invalid.at(
            "$.offset", f"An offset goes up to {OFFSET_MOST:,}. Send the `nextCursor` of each page with the next one to go further."
        )
    before, before_id = paging.place(cursor)
    rows = await repository.page(conn, which, limit=limit + 1, offset=offset, before=before, before_id=before_id)
    counted = await repository.count(conn, which, COUNTED_MOST + 1)
    shown, more = paging.page(rows, limit, lambda job: (job.created_at, job.id))
    return Page(
        jobs=shown,
        total=min(counted, COUNTED_MOST),
        total_is_capped=counted > COUNTED_MOST,
        next_cursor=more,
    )


async def one(conn: Conn, principal: Principal, named: str) -> KnownJob:
    """The job of that id; NotFound also when it belongs to a project that the key may not see."""
    job_id = named_id(named)
    job = await repository.one(conn, principal.team_id, principal.project_id, job_id) if job_id else None
    if job is None:
        raise NotFound(NO_SUCH)
    return job


async def standing(conn: Conn, principal: Principal, named: str) -> JobStanding:
    """The job of that id, with what came of it; the key needs the scope jobs:read."""
    job = await one(conn, principal, named)
    numbers = await observations.numbers_of_job(conn, principal.team_id, job.id) if job.status == "completed" else []
    return JobStanding(job=job, numbers=numbers)


async def life(conn: Conn, principal: Principal, named: str, *, limit: int, cursor: str | None) -> tuple[list[Step], str | None]:
    """The steps of the job's life, oldest first, and the cursor of the next page."""
    job = await one(conn, principal, named)
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 9):
        raise paging.no_cursor()
    steps = await repository.steps(conn, principal.team_id, job.id, after=int(cursor or 0), limit=limit + 1)
    return steps[:limit], str(steps[limit - 1].place) if len(steps) > limit else None


def behind(counts: QueueCounts, warning_seconds: float) -> str | None:
    """A sentence when the oldest waiting job is older than the setting allows; never, when that is 0."""
    oldest = counts.oldest_waiting_seconds
    if not warning_seconds or oldest is None or oldest <= warning_seconds:
        return None
    return (
        f"The oldest waiting job has waited for {oldest:.0f} s, longer than {warning_seconds:g} s "
        "(CMSERVER_QUEUE_WARNING_SECONDS). See whether workers run, and what they log."
    )
