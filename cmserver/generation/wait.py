"""Waiting for jobs to end, without a polling loop: the bell says when a lane's batch is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from cmserver.base.db import Db
from cmserver.base.live import Hub
from cmserver.generation import repository
from cmserver.generation.bell import DONE
from cmserver.generation.model import Job

TERMINAL = {"completed", "failed", "cancelled"}


async def ended(db: Db, hub: Hub, team_id: UUID, jobs: Sequence[Job], timeout_seconds: float) -> dict[UUID, Job]:
    """The jobs as they are when all have ended, or when the time is up."""
    lanes = {str(job.lane) for job in jobs}
    news = asyncio.Event()

    def heard(payload: str) -> None:
        # Empty after a reconnect: anything may have been missed.
        if not payload or not lanes.isdisjoint(payload.split()):
            news.set()

    stop_hearing = hub.on(DONE, heard)
    now = {job.id: job for job in jobs}
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                news.clear()
                async with db.tenant(team_id) as conn:
                    for job_id, job in list(now.items()):
                        if job.status not in TERMINAL:
                            now[job_id] = await repository.job(conn, team_id, job_id) or job
                if all(job.status in TERMINAL for job in now.values()):
                    return now
                await news.wait()
    except TimeoutError:
        return now
    finally:
        stop_hearing()
