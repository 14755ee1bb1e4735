"""Reindex jobs: the search columns of an observation, a session or a project are computed anew, without a provider.

A trigger makes them, so an UPDATE that changes nothing is enough. It goes in chunks, each its own transaction behind the
claim's fence. How far it got stands in the job's payload: whoever takes the job over goes on from there, and a worker gives a long
one back before its hard limit.
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
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.generation import repository
from cmserver.generation.apply import LeaseLostError
from cmserver.generation.model import Asker, Claim, End, HeldJob
from cmserver.generation.operate import repository as operate
from cmserver.generation.operate.model import KnownJob
from cmserver.observations import repository as observations
from cmserver.observations.model import Place
from cmserver.observations.reindex.repository import reindex as reindex_observations
from cmserver.sessions import repository as sessions

CHUNK = 500

Scope = Literal["observation", "session", "project"]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a reindex job: what it is about, how many observations are done, and the last of them."""

    scope: Scope
    done: int = 0
    created_at: datetime | None = None
    id: UUID | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be reindexed: a thing that is there, and that the caller may name."""

    project_id: UUID
    scope: Scope
    source_id: UUID


async def ask(conn: Conn, principal: Principal, target: Target, *, max_attempts: int) -> tuple[KnownJob, bool]:
    """The job, and whether it is new: while one still waits, asking again is answered with that one."""
    last = await operate.last_reindex(conn, principal.team_id, target.project_id, target.source_id)
    if last is not None and last.status == "queued":
        return last, False
    asker = Asker(
        team_id=principal.team_id,
        api_key_id=principal.key_id,
        actor_id=principal.actor_id,
        request_id=audit.request_id(),
        max_attempts=max_attempts,
    )
    try:
        job = await operate.insert_reindex(
            conn,
            asker,
            job_id=new_id(),
            project_id=target.project_id,
            source_id=target.source_id,
            source_run=last.source_run + 1 if last else 1,
            payload={"scope": target.scope},
        )
    except errors.ForeignKeyViolation as error:  # deleted since it was named
        raise NotFound("There is no such project.") from error
    if job is None:  # somebody else has asked at the same moment
        last = await operate.last_reindex(conn, principal.team_id, target.project_id, target.source_id)
        if last is None:
            raise Conflict("Somebody else has asked for the same at the same moment; ask again.")
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
    await repository.wake_lane(conn, job.lane, principal.team_id, target.project_id)
    return job, True


def progress_of(job: HeldJob) -> Progress | str:
    """What the job is about, or a sentence why that cannot be known (a row that psql wrote)."""
    try:
        return msgspec.convert(job.job_payload, Progress)
    except msgspec.ValidationError as error:
        return f"The payload of this job does not say what to reindex: {error}."


async def source_is_there(conn: Conn, job: HeldJob, scope: Scope) -> bool:
    """Whether what is to be reindexed still is in the job's project."""
    if scope == "project":
        return job.source_id == job.project_id
    found = (
        await observations.by_id(conn, job.team_id, job.source_id)
        if scope == "observation"
        else await sessions.by_id(conn, job.team_id, job.source_id)
    )
    return found is not None and found.project_id == job.project_id


async def chunk(conn: Conn, claim: Claim, job: HeldJob, progress: Progress) -> Progress | None:
    """Reindex the next observations; None when there are no more, or the job was cancelled. LeaseLostError when it is not ours."""
    if job.id not in await repository.still_held(conn, claim.claim, [job.id]):
        if not await repository.holds(conn, claim.lane, claim.claim):
            raise LeaseLostError
        return None
    after = Place(created_at=progress.created_at, id=progress.id) if progress.created_at and progress.id else None
    done = await reindex_observations(
        conn,
        job.team_id,
        job.project_id,
        session_id=job.source_id if progress.scope == "session" else None,
        observation_id=job.source_id if progress.scope == "observation" else None,
        after=after,
        limit=CHUNK,
    )
    if not done:
        return None
    last = max(done, key=lambda one: (one.created_at, one.id))
    now = Progress(scope=progress.scope, done=progress.done + len(done), created_at=last.created_at, id=last.id)
    await repository.note_progress(conn, claim.claim, job.id, now)
    return now


def end_of(job: HeldJob, progress: Progress) -> End:
    """It made no observation, so it ends as skipped; the reason says how many were reindexed."""
    reason = f"{progress.done} observation{'' if progress.done == 1 else 's'} reindexed"
    return End(job_id=job.id, status="completed", outcome="skipped", reason=reason)
