"""A session's start and end. The end asks for one summary of each run of the session, after the events that wait in its lane."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal, Project
from cmserver.base.errors import NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.generation import repository as generation
from cmserver.generation.model import JOB_FOR_SUMMARY, Asker, Job
from cmserver.ingest.identity import job_key
from cmserver.sessions import repository as sessions
from cmserver.sessions import start as session_start
from cmserver.sessions.model import NewSession, Session

_NO_SUCH = "There is no such session."


async def start(conn: Conn, principal: Principal, project: Project, new: NewSession) -> tuple[Session, bool]:
    """The session and whether it is new; one that had ended is open again."""
    session, is_new = await session_start.start(conn, principal.team_id, project.id, new)
    if is_new:
        await audit.record(conn, principal, "session.started", "session", session.id, project_id=project.id)
    return session, is_new


async def end(
    conn: Conn, principal: Principal, session_id: UUID, *, source_adapter: str, max_attempts: int
) -> tuple[Session, Job, bool]:
    """The session, its summary job, and whether the job is new.

    Ended again without anything new in between, it gives the same job; after new events or prompts, the summary of a new run.
    """
    session = await sessions.lock(conn, principal.team_id, session_id)
    if session is None or principal.project_id not in {None, session.project_id}:
        raise NotFound(_NO_SUCH)
    ended = await sessions.end(conn, principal.team_id, session_id)
    last = await generation.last_summary_job(conn, principal.team_id, session.project_id, session_id)
    if last is not None and not await generation.news_since(conn, session_id, last.id):
        return ended, last, False
    run = last.source_run + 1 if last else 1
    asker = Asker(
        team_id=principal.team_id,
        api_key_id=principal.key_id,
        actor_id=principal.actor_id,
        request_id=audit.request_id(),
        max_attempts=max_attempts,
    )
    key = job_key(
        team_id=principal.team_id,
        project_id=session.project_id,
        source_type="session_summary",
        source_id=session_id,
        job_type=JOB_FOR_SUMMARY,
        source_run=run,
    )
    job = await generation.insert_summary_job(
        conn,
        asker,
        job_id=new_id(),
        project_id=session.project_id,
        session_id=session_id,
        source_run=run,
        source_adapter=source_adapter,
        idempotency_key=key,
    )
    await audit.record(
        conn, principal, "session.ended", "session", session_id, project_id=session.project_id, job=str(job.id), run=run
    )
    await generation.wake_lane(conn, session_id, principal.team_id, session.project_id)
    return ended, job, True
