"""Waiting for jobs to end: the bell says when a lane's batch is done, and a look every few seconds is the net for a lost ring."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from uuid import UUID

from msgspec import structs

from cmserver.base.db import Db
from cmserver.base.live import Hub
from cmserver.generation import repository
from cmserver.generation.bell import DONE
from cmserver.generation.model import Job

NET_SECONDS = 2.0
TERMINAL = {"completed", "failed", "cancelled"}


async def ended(db: Db, hub: Hub, team_id: UUID, jobs: Sequence[Job], timeout_seconds: float) -> dict[UUID, Job]:
    """The jobs as they are when all have ended, the time is up, or the server stops. One that is erased counts as cancelled."""
    lanes = {str(job.lane) for job in jobs}
    news = asyncio.Event()

    def heard(payload: str) -> None:
        # Empty after a reconnect: anything may have been missed.
        if not payload or not lanes.isdisjoint(payload.split()):
            news.set()

    stop_hearing = hub.on(DONE, heard)
    now = {job.id: job for job in jobs}
    end = asyncio.get_running_loop().time() + timeout_seconds
    try:
        while True:
            news.clear()
            waiting = [job_id for job_id, job in now.items() if job.status not in TERMINAL]
            async with db.tenant(team_id) as conn:
                found = {job.id: job for job in await repository.jobs(conn, team_id, waiting)}
            now |= {job_id: found.get(job_id) or structs.replace(now[job_id], status="cancelled") for job_id in waiting}
            left = end - asyncio.get_running_loop().time()
            if left <= 0 or hub.closing or all(job.status in TERMINAL for job in now.values()):
                return now
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), min(left, NET_SECONDS))
    finally:
        stop_hearing()
