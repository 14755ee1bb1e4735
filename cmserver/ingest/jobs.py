"""The idle sweep: ends the sessions that nobody ends, so that an agent that crashed still gets its summary."""

from __future__ import annotations

from functools import partial

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import Job
from cmserver.ingest import session_lifecycle
from cmserver.sessions import repository as sessions

log = get_logger(__name__)


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


async def end_idle_sessions(db: Db, notifier: JobNotifier, settings: Settings) -> None:
    """End and summarise sessions that had no event for CMSERVER_SESSION_IDLE_HOURS."""
    if settings.session_idle_hours <= 0:
        return
    jobs = await sweep(db, notifier, idle_seconds=settings.session_idle_hours * 3600)
    if jobs:
        log.info("sessions.ended", sessions=[str(job.source_id) for job in jobs])
