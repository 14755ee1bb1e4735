"""A session's start and end. The end asks for one summary of each run of the session, after the events that wait in its lane."""

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
    session = await sessions.lock(conn, principal.team_id, session_id)
    if session is None or not principal.sees(session.project_id):
        raise NotFound(NO_SUCH)
    last = await generation.last_summary_job(conn, principal.team_id, session.project_id, session_id)
    if last is not None and not await generation.news_since(conn, principal.team_id, session_id, last.id):
        return await sessions.end(conn, principal.team_id, session_id), last, False
    asker = Asker(
        team_id=principal.team_id,
        api_key_id=principal.key_id,
        actor_id=principal.actor_id,
        request_id=audit.request_id(),
        max_attempts=max_attempts,
    )
    ended, job = await _end(conn, asker, session, last, source_adapter)
    return ended, job, True


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
        await _note_end(conn, asker, session, {})
    return None


async def _end(conn: Conn, asker: Asker, session: Session, last: Job | None, source_adapter: str) -> tuple[Session, Job]:
    """With a new summary; the caller holds the session's lock. Wakes the lane, also one that waits for this end."""
    ended = await sessions.end(conn, asker.team_id, session.id, anew=True)
    run = last.source_run + 1 if last else 1
    key = job_key(
        team_id=asker.team_id,
        project_id=session.project_id,
        source_type="session_summary",
        source_id=session.id,
        job_type=JOB_FOR_SUMMARY,
        source_run=run,
    )
    job = await generation.insert_summary_job(
        conn,
        asker,
        job_id=new_id(),
        project_id=session.project_id,
        session_id=session.id,
        source_run=run,
        source_adapter=source_adapter,
        idempotency_key=key,
    )
    await _note_end(conn, asker, session, {"job": str(job.id), "run": run})
    await generation.wake_lane(conn, session.id, asker.team_id, session.project_id)
    return ended, job


async def _note_end(conn: Conn, asker: Asker, session: Session, details: dict[str, object]) -> None:
    await audit_log.append(
        conn,
        team_id=asker.team_id,
        project_id=session.project_id,
        actor_id=asker.actor_id,
        api_key_id=asker.api_key_id,
        action="session.ended",
        resource_type="session",
        resource_id=str(session.id),
        request_id=asker.request_id,
        details=details,
    )
