"""A session's start, the ends of its turns, and its own end.

The end asks for one summary of each run of the session, after the events that wait in its lane. A turn's end is a checkpoint: it
asks for a summary only when enough has happened since the last one, so that a turn never costs a summary by itself.
"""

from __future__ import annotations

from uuid import UUID

from cmserver.access import announce, audit
from cmserver.access.audit import repository as audit_log
from cmserver.access.model import Principal, Project
from cmserver.base.errors import NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.generation import repository as generation
from cmserver.generation.model import JOB_FOR_SUMMARY, Asker, Job
from cmserver.ingest.identity import job_key
from cmserver.ingest.model import Checkpoints
from cmserver.sessions import repository as sessions
from cmserver.sessions import start as session_start
from cmserver.sessions.model import NewSession, Session, SessionOfTeam
from cmserver.sessions.read import NO_SUCH

IDLE_SWEEP = "idle-sweep"
"""Who ends the sessions that nobody ends."""


async def start(conn: Conn, principal: Principal, project: Project, new: NewSession) -> tuple[Session, bool]:
    """The session and whether it is new; one that had ended is open again."""
    session, started = await session_start.start(conn, principal.team_id, project.id, new)
    if started != "known":
        action = "session.started" if started == "new" else "session.resumed"
        await audit.record(conn, principal, action, "session", session.id, project_id=project.id)
        await announce.news(conn)
    return session, started == "new"


async def end(
    conn: Conn, principal: Principal, session_id: UUID, *, source_adapter: str, max_attempts: int
) -> tuple[Session, Job, bool]:
    """The session, its summary job, and whether the job is new.

    Ended again without anything new in between, it gives the same job; after new events or prompts, the summary of a new run.
    """
    session, last = await _locked(conn, principal, session_id)
    if last is not None and not await generation.news_since(conn, principal.team_id, session_id, last.id):
        return await sessions.end(conn, principal.team_id, session_id), last, False
    ended, job = await _end(conn, _asker(principal, max_attempts), session, last, source_adapter)
    return ended, job, True


async def end_of_run_or_turn(
    conn: Conn, principal: Principal, session_id: UUID, *, source_adapter: str, max_attempts: int, after: Checkpoints
) -> tuple[Session, Job | None, bool]:
    """Like `end`, for callers who do not all mean it: agents that speak the API themselves say "end" after each of their turns.

    Theirs is a checkpoint, and the session stays open; the idle sweep ends it. The job is None before the first one.
    """
    session, last = await _locked(conn, principal, session_id)
    if not await events.ends_a_turn(conn, principal.team_id, session.project_id, session_id):
        return await end(conn, principal, session_id, source_adapter=source_adapter, max_attempts=max_attempts)
    job = await checkpoint(conn, principal, session_id, source_adapter=source_adapter, max_attempts=max_attempts, after=after)
    return session, job or last, job is not None


async def checkpoint(
    conn: Conn, principal: Principal, session_id: UUID, *, source_adapter: str, max_attempts: int, after: Checkpoints
) -> Job | None:
    """A turn has ended: a new summary job if enough has happened since the last one, else None. The session stays as it is.

    A summary that has not been made yet is enough; and where observations wait for the session's end, so does its summary.
    """
    session, last = await _locked(conn, principal, session_id)
    if last is not None and last.status in {"queued", "processing"}:
        return None
    last_id = last.id if last else None
    done = await generation.work_since(
        conn, principal.team_id, session_id, last_id, started_at=session.started_at, most=after.events
    )
    if done.waits_for_end or (done.events < after.events and done.seconds < after.minutes * 60):
        return None
    if not await generation.news_since(conn, principal.team_id, session_id, last_id):
        return None
    asker = _asker(principal, max_attempts)
    job = await _ask_for_summary(conn, asker, session, last, source_adapter)
    details: dict[str, object] = {"job": str(job.id), "run": job.source_run}
    await _note(conn, asker, session, "session.checkpoint", details)
    await generation.wake_lane(conn, session.id, asker.team_id, session.project_id)
    return job


async def end_if_idle(conn: Conn, named: SessionOfTeam, *, idle_seconds: float, max_attempts: int) -> Job | None:
    """End the session as its agent would have done, if there was no sign of life for so long; its new summary job.

    What has got nothing since its last summary gets no other one; a session in which nothing ever happened gets none.
    """
    session = await sessions.lock_idle(conn, named.team_id, named.id, idle_seconds=idle_seconds)
    if session is None:
        return None
    seen_at = await events.last_received(conn, session.team_id, session.project_id, session.id)
    if seen_at and await sessions.still_alive(conn, session.team_id, session.id, seen_at, idle_seconds=idle_seconds):
        return None
    asker = Asker(team_id=session.team_id, api_key_id=None, actor_id=IDLE_SWEEP, request_id=None, max_attempts=max_attempts)
    last = await generation.last_summary_job(conn, session.team_id, session.project_id, session.id)
    if await generation.news_since(conn, session.team_id, session.id, last.id if last else None):
        return (await _end(conn, asker, session, last, "server"))[1]
    await sessions.end(conn, session.team_id, session.id)
    if session.ended_at is None:
        await _note(conn, asker, session, "session.ended", {})
    return None


async def _locked(conn: Conn, principal: Principal, session_id: UUID) -> tuple[Session, Job | None]:
    """The session, locked, and the newest of its summary jobs; NotFound when it is not the caller's."""
    session = await sessions.lock(conn, principal.team_id, session_id)
    if session is None or not principal.sees(session.project_id):
        raise NotFound(NO_SUCH)
    return session, await generation.last_summary_job(conn, principal.team_id, session.project_id, session_id)


def _asker(principal: Principal, max_attempts: int) -> Asker:
    return Asker(
        team_id=principal.team_id,
        api_key_id=principal.key_id,
        actor_id=principal.actor_id,
        request_id=audit.request_id(),
        max_attempts=max_attempts,
    )


async def _end(conn: Conn, asker: Asker, session: Session, last: Job | None, source_adapter: str) -> tuple[Session, Job]:
    """With a new summary; the caller holds the session's lock. Wakes the lane, also one that waits for this end."""
    ended = await sessions.end(conn, asker.team_id, session.id, anew=True)
    job = await _ask_for_summary(conn, asker, session, last, source_adapter)
    await _note(conn, asker, session, "session.ended", {"job": str(job.id), "run": job.source_run})
    await generation.wake_lane(conn, session.id, asker.team_id, session.project_id)
    return ended, job


async def _ask_for_summary(conn: Conn, asker: Asker, session: Session, last: Job | None, source_adapter: str) -> Job:
    run = last.source_run + 1 if last else 1
    key = job_key(
        team_id=asker.team_id,
        project_id=session.project_id,
        source_type="session_summary",
        source_id=session.id,
        job_type=JOB_FOR_SUMMARY,
        source_run=run,
    )
    return await generation.insert_summary_job(
        conn,
        asker,
        job_id=new_id(),
        project_id=session.project_id,
        session_id=session.id,
        source_run=run,
        source_adapter=source_adapter,
        idempotency_key=key,
    )


async def _note(conn: Conn, asker: Asker, session: Session, action: str, details: dict[str, object]) -> None:
    await audit_log.append(
        conn,
        team_id=asker.team_id,
        project_id=session.project_id,
        actor_id=asker.actor_id,
        api_key_id=asker.api_key_id,
        action=action,
        resource_type="session",
        resource_id=str(session.id),
        request_id=asker.request_id,
        details=details,
    )
