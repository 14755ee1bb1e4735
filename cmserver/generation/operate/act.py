"""Acting on one job by hand. The same acts as retry_job and cancel_job in psql, for the jobs that a key may reach."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.generation.operate import repository
from cmserver.generation.operate.model import KnownJob
from cmserver.generation.operate.read import NO_SUCH


async def retry(conn: Conn, principal: Principal, named: str) -> tuple[KnownJob, bool]:
    """The job, which is queued now, and whether it was not before. A failed or cancelled one gets three more attempts."""
    job = await _locked(conn, principal, named_id(named))
    if job.status == "queued":
        return job, False
    if job.status in {"processing", "completed"}:
        raise Conflict(f"A job that is {job.status} cannot be sent back to the queue; only one that failed or was cancelled can.")
    again = await repository.retry(conn, principal.team_id, job.id, api_key_id=principal.key_id, actor_id=principal.actor_id)
    await audit.record(conn, principal, "job.retried", "generation_job", job.id, project_id=job.project_id, was=job.status)
    return again, True


async def cancel(conn: Conn, principal: Principal, named: str) -> tuple[KnownJob, bool]:
    """The job, and whether this is what cancels it.

    One that waits has ended now; one that runs is marked: its worker is to be told, stops it, and writes nothing for it.
    """
    job = await _locked(conn, principal, named_id(named))
    if job.status == "cancelled" or job.cancel_requested_at is not None:
        return job, False
    if job.status in {"completed", "failed"}:
        raise Conflict(f"A job that has {job.status} cannot be cancelled any more.")
    stopped = await repository.cancel(conn, principal.team_id, job.id)
    await audit.record(conn, principal, "job.cancelled", "generation_job", job.id, project_id=job.project_id, was=job.status)
    return stopped, True


async def _locked(conn: Conn, principal: Principal, job_id: UUID | None) -> KnownJob:
    job = await repository.lock(conn, principal.team_id, principal.project_id, job_id) if job_id else None
    if job is None:
        raise NotFound(NO_SUCH)
    return job
