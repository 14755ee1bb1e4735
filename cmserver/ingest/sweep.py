"""Ends the sessions that nobody ends: an agent that crashed or lost its network still gets its summary."""

from __future__ import annotations

from functools import partial

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.generation.bell import Bell
from cmserver.generation.model import Job
from cmserver.ingest import session
from cmserver.sessions import repository as sessions

log: FilteringBoundLogger = structlog.get_logger(__name__)

MOST = 500
"""So many are looked at in one sweep; the next one goes on with the others."""


async def sweep(db: Db, bell: Bell, *, idle_seconds: float, max_attempts: int) -> list[Job]:
    """Look at the sessions that seem idle, each in a transaction of its own; the new summary jobs. Two may run at once."""
    async with db.system_statement() as conn:
        idle = await sessions.seem_idle(conn, idle_seconds=idle_seconds, limit=MOST)
    jobs: list[Job] = []
    for one in idle:
        act = partial(session.end_if_idle, named=one, idle_seconds=idle_seconds, max_attempts=max_attempts)
        try:
            job = await db.in_tenant(one.team_id, act)
        except Unavailable:
            raise
        except Exception:  # one session must not keep the others from their end
            log.exception("session.not_ended", session=str(one.id))
            continue
        if job is not None:
            jobs.append(job)
            bell.ring()
    return jobs
