"""The idle sweep: ends the sessions that nobody ends, so that an agent that crashed still gets its summary."""

from __future__ import annotations

from functools import partial

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.logs import get_logger
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import Job
from cmserver.ingest import session_lifecycle
from cmserver.sessions import repository as sessions

log = get_logger(__name__)


IDLE_SECONDS = 4 * 3600.0
"""A lunch and a meeting: who comes back after them goes on with the same session."""
MAX_SESSIONS = 500
"""The most sessions per sweep; the next sweep continues."""


async def sweep(db: Db, notifier: JobNotifier, *, idle_seconds: float) -> list[Job]:
    """End the sessions that are idle, each in a transaction of its own; the new summary jobs. Two sweeps may run at once."""
    async with db.system_statement() as conn:
        idle_sessions = await sessions.seem_idle(conn, idle_seconds=idle_seconds, limit=MAX_SESSIONS)
    jobs: list[Job] = []
    for idle in idle_sessions:
        act = partial(session_lifecycle.end_if_idle, idle_session=idle, idle_seconds=idle_seconds)
        try:
            job = await db.in_tenant(idle.team_id, act)
        except Unavailable:
            raise
        except Exception:  # one session must not keep the others from their end
            log.exception("session.not_ended", session=str(idle.id))
            continue
        if job is not None:
            jobs.append(job)
            notifier.notify_due()
    return jobs


async def end_idle_sessions(db: Db, notifier: JobNotifier, *, idle_seconds: float = IDLE_SECONDS) -> None:
    """End and summarise sessions that had no event for hours."""
    jobs = await sweep(db, notifier, idle_seconds=idle_seconds)
    if jobs:
        log.info("sessions.ended", sessions=[str(job.source_id) for job in jobs])
