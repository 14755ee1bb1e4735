"""Reindex jobs: recompute the search columns of an observation, a session or a project, without a provider.

A trigger computes them, so an UPDATE that changes nothing is enough. Each chunk is a transaction behind the claim's fence. The
progress is stored in the job's payload, where the next claim resumes it; a worker gives a long job back before its hard limit.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.ids import new_id, request_id
from cmserver.base.sql import Conn
from cmserver.generation import repository
from cmserver.generation.intake import repository as intake
from cmserver.generation.lease import LeaseLostError
from cmserver.generation.model import Claim, ClaimedJob, End, Job, JobOrigin
from cmserver.generation.operate import repository as queue
from cmserver.observations import repository as observations
from cmserver.observations.model import Place
from cmserver.sessions import repository as sessions

CHUNK = 500

Scope = Literal["observation", "session", "project"]


class ReindexProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a reindex job: its scope, how many observations it had, how many are done, and the last one."""

    scope: Scope
    total: int = 0
    done: int = 0
    created_at: datetime | None = None
    id: UUID | None = None


class ReindexTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What to reindex; it exists and the caller may see it."""

    project_id: UUID
    scope: Scope
    source_id: UUID


async def request_reindex(conn: Conn, principal: Principal, target: ReindexTarget) -> tuple[Job, bool]:
    """The job, and whether it is new: while one is queued, the same one is returned."""
    last = await queue.last_reindex(conn, principal.team_id, target.project_id, target.source_id)
    if last is not None and last.status == "queued":
        return last, False
    job_origin = JobOrigin(
        team_id=principal.team_id,
        api_key_id=principal.key_id,
        actor_id=principal.actor_id,
        request_id=request_id(),
    )
    session_id, observation_id = _narrow(target.scope, target.source_id)
    total = await observations.count_for_reindex(
        conn, principal.team_id, target.project_id, session_id=session_id, observation_id=observation_id
    )
    try:
        job = await queue.insert_reindex(
            conn,
            job_origin,
            job_id=new_id(),
            project_id=target.project_id,
            source_id=target.source_id,
            source_run=last.source_run + 1 if last else 1,
            payload={"scope": target.scope, "total": total},
        )
    except errors.ForeignKeyViolation as error:  # deleted meanwhile
        raise NotFound("Project not found.") from error
    if job is None:  # requested at the same moment by another
        last = await queue.last_reindex(conn, principal.team_id, target.project_id, target.source_id)
        if last is None:
            raise Conflict("The same reindex was requested at the same moment. Try again.")
        return last, False
    await audit.record(
        conn,
        principal,
        "reindex.requested",
        "generation_job",
        job.id,
        project_id=target.project_id,
        scope=target.scope,
        source=str(target.source_id),
    )
    await intake.make_lane_due(conn, job.lane, principal.team_id, target.project_id)
    return job, True


def read_progress(job: ClaimedJob) -> ReindexProgress | str:
    """The job's progress, or a sentence why its payload is invalid (a row that psql wrote)."""
    try:
        return msgspec.convert(job.job_payload, ReindexProgress)
    except msgspec.ValidationError as error:
        return f"The payload of this job is no reindex request: {error}."


async def has_source(conn: Conn, job: ClaimedJob, scope: Scope) -> bool:
    """Whether the job's source still exists in its project."""
    if scope == "project":
        return job.source_id == job.project_id
    source = (
        await observations.by_id(conn, job.team_id, job.source_id)
        if scope == "observation"
        else await sessions.by_id(conn, job.team_id, job.source_id)
    )
    return source is not None and source.project_id == job.project_id


async def reindex_chunk(conn: Conn, claim: Claim, job: ClaimedJob, progress: ReindexProgress) -> ReindexProgress | None:
    """Reindex the next observations. None when there are no more or the job was cancelled; LeaseLostError when it is not ours."""
    if job.id not in await repository.still_held(conn, [claim.claim], [job.id]):
        if not await repository.holds(conn, claim.lane, claim.claim):
            raise LeaseLostError
        return None
    session_id, observation_id = _narrow(progress.scope, job.source_id)
    after = Place(created_at=progress.created_at, id=progress.id) if progress.created_at and progress.id else None
    reindexed = await observations.reindex(
        conn,
        job.team_id,
        job.project_id,
        session_id=session_id,
        observation_id=observation_id,
        after=after,
        limit=CHUNK,
    )
    if not reindexed:
        return None
    last = max(reindexed, key=lambda place: (place.created_at, place.id))
    done = progress.done + len(reindexed)
    updated = msgspec.structs.replace(progress, done=done, created_at=last.created_at, id=last.id)
    await repository.save_progress(conn, claim.claim, job.id, updated)
    return updated


def _narrow(scope: Scope, source_id: UUID) -> tuple[UUID | None, UUID | None]:
    """Return the session and the observation to which the scope is narrowed."""
    return (source_id if scope == "session" else None, source_id if scope == "observation" else None)


def completed_end(job: ClaimedJob, progress: ReindexProgress) -> End:
    """Ends as skipped, as it made no observation; the reason says how many were reindexed."""
    reason = f"{progress.done} observation{'' if progress.done == 1 else 's'} reindexed"
    return End(job_id=job.id, status="completed", outcome="skipped", reason=reason)
