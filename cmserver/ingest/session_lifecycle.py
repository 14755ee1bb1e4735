"""A session's start, the ends of its turns, and its own end.

The end asks for one summary of each run of the session, after the events that wait in its lane. A turn's end is a checkpoint: it
asks for a summary only when enough has happened since the last one, so that a turn never costs a summary by itself.

Functions that take a `db` have a transaction of their own, and then notify the workers of the new summary job.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from cmserver.access import announce, audit
from cmserver.access.audit import repository as audit_log
from cmserver.access.model import Principal, Project
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.generation import repository as generation
from cmserver.generation.intake import repository as intake
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import JOB_FOR_SUMMARY, Job, JobOrigin
from cmserver.ingest.door import gathers_turns
from cmserver.ingest.identity import make_job_key
from cmserver.ingest.model import Checkpoints
from cmserver.ingest.record import make_job_origin
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import NewSession, Session, SessionOfTeam
from cmserver.sessions.read import NO_SUCH
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.write import find_or_make, refuse_private

IDLE_SWEEP = "idle-sweep"
"""The actor, in the audit log, that ends idle sessions."""
CHECKPOINTS = Checkpoints(events=50, minutes=30.0)
"""An hour of work or two: fewer summaries would tell of too much at once, more would cost a call of the model each."""


async def start(conn: Conn, principal: Principal, project: Project, new: NewSession) -> tuple[Session, bool]:
    """The session and whether it is new; one that had ended is open again. Conflict for one that is private to the caller."""
    await refuse_private(conn, principal, new)
    session, is_new = await find_or_make(conn, principal.team_id, project.id, new, key_id=project.key_id, only=principal.project_id)
    resumed = None if is_new else await sessions.resume(conn, principal.team_id, session.id)
    if not is_new and resumed is None:
        await sessions.seen(conn, principal.team_id, session.id)
        return session, False
    action = "session.started" if is_new else "session.resumed"
    await audit.record(conn, principal, action, "session", session.id, project_id=session.project_id)
    await announce.notify_stream(conn)
    return resumed or session, is_new


async def checkpoint_turn(
    db: Db,
    notifier: JobNotifier,
    settings: Settings,
    principal: Principal,
    project: Project,
    session_id: UUID,
    *,
    occurred_at: datetime | None = None,
) -> Job | None:
    """Make the turn's events due; a summary job if enough happened. `occurred_at`: when the client says that it ended."""
    is_gathered = gathers_turns(settings, project)

    async def end_turn(conn: Conn) -> Job | None:
        job = await checkpoint(
            conn,
            principal,
            session_id,
            source_adapter="hook",
            after=CHECKPOINTS,
            occurred_at=occurred_at,
            beside_open=is_gathered,
        )
        if is_gathered:
            await generation.make_waiting_lane_due(conn, session_id)
        return job

    job = await db.in_tenant(principal.team_id, end_turn)
    if job is not None or is_gathered:
        notifier.notify_due()
    return job


async def make_turn_due(
    db: Db, notifier: JobNotifier, settings: Settings, principal: Principal, project: Project, session_id: UUID, *, by_prompt: bool
) -> None:
    """Make the events due of a turn that ended without the agent's last message: the next prompt is there, or it failed."""
    if gathers_turns(settings, project):
        make_due = generation.make_earlier_turn_due if by_prompt else generation.make_waiting_lane_due
        await db.in_tenant(principal.team_id, lambda conn: make_due(conn, session_id))
        notifier.notify_due()


async def end_session(
    db: Db, notifier: JobNotifier, principal: Principal, session_id: UUID, *, occurred_at: datetime | None = None
) -> None:
    """End the session, as the agent's hook reports; `occurred_at` is when the client says that it ended."""
    _, _, is_new = await db.in_tenant(
        principal.team_id,
        lambda conn: end(conn, principal, session_id, source_adapter="hook", occurred_at=occurred_at),
    )
    if is_new:
        notifier.notify_due()


async def end_session_or_turn(db: Db, notifier: JobNotifier, principal: Principal, session_id: UUID) -> tuple[Session, Job | None]:
    """End the session over the API, or only the turn: some agents end their session after each turn."""
    session, job, is_new = await db.in_tenant(
        principal.team_id,
        lambda conn: end_of_run_or_turn(
            conn,
            principal,
            session_id,
            source_adapter="api",
            after=CHECKPOINTS,
        ),
    )
    if is_new:
        notifier.notify_due()
    return session, job


async def end(
    conn: Conn,
    principal: Principal,
    session_id: UUID,
    *,
    source_adapter: str,
    occurred_at: datetime | None = None,
) -> tuple[Session, Job, bool]:
    """The session, its summary job, and whether the job is new. `occurred_at` is when the client says that it ended.

    Ending again returns the same job, unless new events or prompts have come: then a new run is summarized.
    """
    session, last = await _lock_session(conn, principal, session_id)
    if last is not None and not await intake.news_since(conn, principal.team_id, session_id, last.id):
        return await _mark_ended(conn, principal.team_id, session_id, occurred_at=occurred_at), last, False
    ended, job = await _end(conn, make_job_origin(principal), session, last, source_adapter, occurred_at)
    return ended, job, True


async def end_of_run_or_turn(
    conn: Conn, principal: Principal, session_id: UUID, *, source_adapter: str, after: Checkpoints
) -> tuple[Session, Job | None, bool]:
    """End the session; or only make a checkpoint when its newest event is the agent's `assistant_message`.

    Some agents report an end after each turn. After a checkpoint the session stays open until the idle sweep ends it. Returns the
    session, its newest summary job (None before the first one), and whether that job is new.
    """
    session, last = await _lock_session(conn, principal, session_id)
    if not await events.ends_a_turn(conn, principal.team_id, session.project_id, session_id):
        return await end(conn, principal, session_id, source_adapter=source_adapter)
    job = await checkpoint(conn, principal, session_id, source_adapter=source_adapter, after=after)
    return session, job or last, job is not None


async def checkpoint(
    conn: Conn,
    principal: Principal,
    session_id: UUID,
    *,
    source_adapter: str,
    after: Checkpoints,
    occurred_at: datetime | None = None,
    beside_open: bool = False,
) -> Job | None:
    """A turn's end: a summary job if enough happened since the last was asked for, and nothing waits for the session's end.

    With `beside_open` also while the last one is still to be made: rules make each from what had happened until it was asked for,
    at whatever speed they come by. A model is asked for one at a time: it costs money.
    """
    session, last = await _lock_session(conn, principal, session_id)
    if last is not None and last.status in {"queued", "processing"} and not beside_open:
        return None
    last_id = last.id if last else None
    done = await intake.work_since(
        conn,
        principal.team_id,
        session_id,
        last_id,
        started_at=session.started_at,
        occurred_at=occurred_at,
        max_events=after.events,
    )
    if done.waits_for_end or (done.events < after.events and done.seconds < after.minutes * 60):
        return None
    if not await intake.news_since(conn, principal.team_id, session_id, last_id):
        return None
    origin = make_job_origin(principal)
    job = await _ask_for_summary(conn, origin, session, last, source_adapter)
    details: dict[str, object] = {"job": str(job.id), "run": job.source_run}
    await _record_audit(conn, origin, session, "session.checkpoint", details)
    await intake.make_lane_due(conn, session.id, origin.team_id, session.project_id)
    return job


async def end_if_idle(conn: Conn, idle_session: SessionOfTeam, *, idle_seconds: float) -> Job | None:
    """End the session if nothing has come from it for `idle_seconds`; its new summary job, or None without new events."""
    session = await sessions.lock_idle(conn, idle_session.team_id, idle_session.id, idle_seconds=idle_seconds)
    if session is None:
        return None
    seen_at = await events.last_received(conn, session.team_id, session.project_id, session.id)
    if seen_at and await sessions.still_alive(conn, session.team_id, session.id, seen_at, idle_seconds=idle_seconds):
        return None
    origin = JobOrigin(team_id=session.team_id, api_key_id=None, actor_id=IDLE_SWEEP, request_id=None)
    last = await intake.last_summary_job(conn, session.team_id, session.project_id, session.id)
    if await intake.news_since(conn, session.team_id, session.id, last.id if last else None):
        return (await _end(conn, origin, session, last, "server"))[1]
    await _mark_ended(conn, session.team_id, session.id)
    if session.ended_at is None:
        await _record_audit(conn, origin, session, "session.ended", {})
    return None


async def _lock_session(conn: Conn, principal: Principal, session_id: UUID) -> tuple[Session, Job | None]:
    """The session, locked, and the newest of its summary jobs; NotFound when it is not the caller's."""
    session = await sessions.lock(conn, principal.team_id, session_id)
    if session is None or not principal.sees(session.project_id):
        raise NotFound(NO_SUCH)
    return session, await intake.last_summary_job(conn, principal.team_id, session.project_id, session_id)


async def _end(
    conn: Conn, origin: JobOrigin, session: Session, last: Job | None, source_adapter: str, occurred_at: datetime | None = None
) -> tuple[Session, Job]:
    """End the session and ask for a new summary; the caller holds its lock. Wakes the lane, also one that waits for this end."""
    ended = await _mark_ended(conn, origin.team_id, session.id, anew=True, occurred_at=occurred_at)
    job = await _ask_for_summary(conn, origin, session, last, source_adapter)
    await _record_audit(conn, origin, session, "session.ended", {"job": str(job.id), "run": job.source_run})
    await intake.make_lane_due(conn, session.id, origin.team_id, session.project_id)
    return ended, job


async def _mark_ended(
    conn: Conn, team_id: UUID, session_id: UUID, *, anew: bool = False, occurred_at: datetime | None = None
) -> Session:
    """The ended session; its last turn has ended, too."""
    await turns.end(conn, team_id, session_id)
    return await sessions.end(conn, team_id, session_id, anew=anew, occurred_at=occurred_at)


async def _ask_for_summary(conn: Conn, origin: JobOrigin, session: Session, last: Job | None, source_adapter: str) -> Job:
    """Insert the next summary job of the session and return it. The caller holds the session's lock, so the run is new."""
    run = last.source_run + 1 if last else 1
    key = make_job_key(
        team_id=origin.team_id,
        project_id=session.project_id,
        source_type="session_summary",
        source_id=session.id,
        job_type=JOB_FOR_SUMMARY,
        source_run=run,
    )
    return await intake.insert_summary_job(
        conn,
        origin,
        job_id=new_id(),
        project_id=session.project_id,
        session_id=session.id,
        source_run=run,
        source_adapter=source_adapter,
        idempotency_key=key,
    )


async def _record_audit(conn: Conn, origin: JobOrigin, session: Session, action: str, details: dict[str, object]) -> None:
    await audit_log.append(
        conn,
        team_id=origin.team_id,
        project_id=session.project_id,
        actor_id=origin.actor_id,
        api_key_id=origin.api_key_id,
        action=action,
        resource_type="session",
        resource_id=str(session.id),
        request_id=origin.request_id,
        details=details,
    )
