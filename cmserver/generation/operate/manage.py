"""Lists, shows, retries and cancels the jobs that a key may reach, and lets lanes go on after a provider's pause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Forbidden, Invalid, NotFound
from cmserver.base.ids import from_iso, named_id
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.generation.intake import repository as intake
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import Job, Status
from cmserver.generation.operate import repository
from cmserver.generation.operate.model import MAX_SELECTED, JobEvent, JobFilter, Run
from cmserver.generation.operate.words import explain_outcome, explain_waiting
from cmserver.models.calls import repository as calls
from cmserver.observations import repository as observations
from cmserver.observations.plain import one_line
from cmserver.sessions.read import find_session

NO_SUCH = "There is no such job."
_STEWARD_S = "This is a job of the steward: only a key with the scope admin may retry or cancel it."
MAX_TOTAL = 10_000
"""Totals are counted up to here; counting millions takes too long."""
_MAX_OFFSET = 10_000
_MAX_RUNS = 100
_RETRYABLE: tuple[Status, ...] = ("failed", "cancelled")
_CANCELLABLE: tuple[Status, ...] = ("queued", "processing")
_MAX_SENTENCE_CHARS = 300
"""Maximum length of a reason or an error, which a model or a provider may have written."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, newest first, and the cursor of the next page if there is one. A capped `total` is MAX_TOTAL."""

    jobs: list[Job]
    total: int
    total_is_capped: bool
    next_cursor: str | None


class SelectionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a selection matched (counted up to MAX_SELECTED + 1), and which of them were changed."""

    matched: int
    changed: list[Job]
    dry_run: bool

    @property
    def has_more(self) -> bool:
        return self.matched > MAX_SELECTED


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and the numbers of its observations when it has completed."""

    job: Job
    numbers: list[int]


async def list_jobs(
    conn: Conn, principal: Principal, criteria: JobFilter, *, limit: int, offset: int = 0, cursor: str | None = None
) -> JobPage:
    """The newest jobs from the cursor on, or from the offset."""
    if offset > _MAX_OFFSET:
        raise Invalid.at("$.offset", f"The offset must be at most {_MAX_OFFSET:,}. To go further, send each page's `nextCursor`.")
    before, before_id = paging.place(cursor)
    team_id = principal.team_id
    rows = await repository.page(conn, team_id, criteria, limit=limit + 1, offset=offset, before=before, before_id=before_id)
    total = await repository.count(conn, team_id, criteria, MAX_TOTAL + 1)
    jobs, next_cursor = paging.page(rows, limit, lambda job: (job.created_at, job.id))
    return JobPage(jobs=jobs, total=min(total, MAX_TOTAL), total_is_capped=total > MAX_TOTAL, next_cursor=next_cursor)


async def explain_jobs(conn: Conn, jobs: Sequence[Job]) -> dict[UUID, str]:
    """Why each of the team's jobs that are queued waits, and until when, in words."""
    ids = [job.id for job in jobs if job.status == "queued"]
    return {row.id: explain_waiting(row) for row in await repository.waiting(conn, jobs[0].team_id, ids)} if ids else {}


async def resolve_filter(
    db: Db,
    principal: Principal,
    wanted: msgspec.Struct,
    *,
    project_id: UUID | None,
    session: str | None,
    since: str | None,
    ids: list[UUID] | None = None,
) -> JobFilter:
    """`wanted` with ids and times for what was typed; NotFound when the key does not see the session."""
    session_id = None
    if session is not None:
        async with db.tenant(principal.team_id) as conn:
            session_id = (await find_session(conn, principal, session)).id
    try:
        since_at = None if since is None else from_iso(since)
    except ValueError as error:
        raise Invalid.at("$.since", "Invalid time: use ISO 8601, such as 2026-11-22 or 2026-11-22T08:00:00Z.") from error
    return reshape(wanted, JobFilter, project_id=project_id, session_id=session_id, since=since_at, ids=ids)


async def find_job(conn: Conn, principal: Principal, text: str, *, lock: bool = False) -> Job:
    """The job with that id. NotFound also when it belongs to a project that the key may not see."""
    job_id = named_id(text)
    find = repository.lock if lock else repository.by_id
    job = await find(conn, principal.team_id, principal.project_id, job_id) if job_id else None
    if job is None:
        raise NotFound(NO_SUCH)
    return job


async def _find_changeable(conn: Conn, principal: Principal, text: str) -> Job:
    """The job with that id, locked. Forbidden when it is the steward's, which only an admin changes."""
    job = await find_job(conn, principal, text, lock=True)
    if job.source_type == "steward" and not principal.may("admin"):
        raise Forbidden(_STEWARD_S)
    return job


async def find_job_status(conn: Conn, principal: Principal, text: str) -> JobStatus:
    """The job with that id and its observations; the key needs the scope jobs:read."""
    job = await find_job(conn, principal, text)
    numbers = await observations.numbers_of_job(conn, principal.team_id, job.id) if job.status == "completed" else []
    return JobStatus(job=job, numbers=numbers)


async def list_job_events(
    conn: Conn, principal: Principal, text: str, *, limit: int, cursor: str | None
) -> tuple[list[JobEvent], str | None]:
    """The job's events, oldest first, and the cursor of the next page."""
    job = await find_job(conn, principal, text)
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 9):
        raise paging.no_cursor()
    events = await repository.job_events(conn, principal.team_id, job.id, after=int(cursor or 0), limit=limit + 1)
    return events[:limit], str(events[limit - 1].number) if len(events) > limit else None


async def retry_job(db: Db, notifier: JobNotifier, principal: Principal, text: str) -> tuple[Job, bool]:
    """Queue a failed or cancelled job with three more attempts; False when it was queued before."""
    job, is_new = await db.in_tenant(principal.team_id, lambda conn: _retry(conn, principal, text))
    if is_new:
        notifier.notify_due()
    return job, is_new


async def _retry(conn: Conn, principal: Principal, text: str) -> tuple[Job, bool]:
    job = await _find_changeable(conn, principal, text)
    if job.status == "queued":
        return job, False
    if job.status in {"processing", "completed"}:
        raise Conflict(f"A job that is {job.status} cannot be retried; only one that failed or was cancelled can.")
    [retried] = await repository.retry(conn, principal.team_id, [job.id], api_key_id=principal.key_id, actor_id=principal.actor_id)
    await audit.record(conn, principal, "job.retried", "generation_job", job.id, project_id=job.project_id, was=job.status)
    return retried, True


async def cancel_job(db: Db, notifier: JobNotifier, principal: Principal, text: str) -> tuple[Job, bool]:
    """End a queued job, or mark a running one so that its worker stops it and writes nothing; False when that was done before."""
    job, is_new = await db.in_tenant(principal.team_id, lambda conn: _cancel(conn, principal, text))
    if is_new and job.status == "cancelled":
        notifier.notify_ended(job.lane)
    elif is_new:
        notifier.notify_cancelled(job.id)
    return job, is_new


async def _cancel(conn: Conn, principal: Principal, text: str) -> tuple[Job, bool]:
    job = await _find_changeable(conn, principal, text)
    if job.status == "cancelled" or job.cancel_requested_at is not None:
        return job, False
    if job.status in {"completed", "failed"}:
        raise Conflict(f"A job that has {job.status} cannot be cancelled.")
    [cancelled] = await repository.cancel(conn, principal.team_id, [job.id])
    await audit.record(conn, principal, "job.cancelled", "generation_job", job.id, project_id=job.project_id, was=job.status)
    return cancelled, True


async def list_runs(conn: Conn, principal: Principal, text: str, *, with_answer: bool) -> list[Run]:
    """The provider calls of the job with that id, newest first, up to 100."""
    job = await find_job(conn, principal, text)
    return await repository.runs(conn, job, limit=_MAX_RUNS, with_answer=with_answer)


async def retry_jobs(
    db: Db, notifier: JobNotifier, principal: Principal, selection: JobFilter, *, dry_run: bool
) -> SelectionResult:
    """Queue up to MAX_SELECTED failed jobs of the selection, with three more attempts each; cancelled ones on request."""
    statuses = _choose_statuses(selection, _RETRYABLE, usual=_RETRYABLE if selection.ids else ("failed",), verb="retried")

    async def retry(conn: Conn, ids: list[UUID]) -> None:
        await repository.retry(conn, principal.team_id, ids, api_key_id=principal.key_id, actor_id=principal.actor_id)

    result = await _change_selected(db, principal, selection, statuses, retry, "jobs.retried", dry_run=dry_run)
    if result.changed:
        notifier.notify_due()
    return result


async def cancel_jobs(
    db: Db, notifier: JobNotifier, principal: Principal, selection: JobFilter, *, dry_run: bool
) -> SelectionResult:
    """Cancel up to MAX_SELECTED queued or running jobs of the selection."""
    statuses = _choose_statuses(selection, _CANCELLABLE, usual=_CANCELLABLE, verb="cancelled")

    async def cancel(conn: Conn, ids: list[UUID]) -> None:
        await repository.cancel(conn, principal.team_id, ids)

    result = await _change_selected(db, principal, selection, statuses, cancel, "jobs.cancelled", dry_run=dry_run)
    for lane in {job.lane for job in result.changed if job.status == "queued"}:
        notifier.notify_ended(lane)
    for job in result.changed:
        if job.status == "processing":
            notifier.notify_cancelled(job.id)
    return result


async def _change_selected(
    db: Db,
    principal: Principal,
    selection: JobFilter,
    statuses: tuple[Status, ...],
    change: Callable[[Conn, list[UUID]], Awaitable[None]],
    action: str,
    *,
    dry_run: bool,
) -> SelectionResult:
    """Change up to MAX_SELECTED jobs, with one audit row for each project. The jobs are as they were before.

    The steward's are left out for a key without the scope admin.
    """
    selection = msgspec.structs.replace(selection, with_steward=principal.may("admin"))

    async def act(conn: Conn) -> SelectionResult:
        matched = await repository.count(conn, principal.team_id, selection, MAX_SELECTED + 1, statuses=statuses)
        if dry_run:
            return SelectionResult(matched=matched, changed=[], dry_run=True)
        jobs = await repository.lock_selected(conn, principal.team_id, selection, statuses, MAX_SELECTED)
        await change(conn, [job.id for job in jobs])
        for project_id, count in Counter(job.project_id for job in jobs).items():
            await audit.record(conn, principal, action, "project", project_id, project_id=project_id, jobs=count)
        return SelectionResult(matched=matched, changed=jobs, dry_run=False)

    return await db.in_tenant(principal.team_id, act)


def _choose_statuses(
    selection: JobFilter, possible: tuple[Status, ...], *, usual: tuple[Status, ...], verb: str
) -> tuple[Status, ...]:
    if selection.status is None:
        return usual
    if selection.status not in possible:
        raise Invalid.at("$.status", f"Only jobs that are {' or '.join(possible)} can be {verb}.")
    return (selection.status,)


async def resume_provider(conn: Conn, provider: str) -> bool:
    """End the provider's pause and make the lanes due that wait for it. False when it was not paused."""
    was_paused = await calls.end_pause(conn, provider)
    if was_paused:
        await intake.MAKE_PAUSED_LANES_DUE.run(conn)
    return was_paused


def render_job_status(status: JobStatus) -> str:
    """The state of a job in a few lines, for an agent."""
    return "".join(f"{line}\n" for line in _status_lines(status))


def _status_lines(status: JobStatus) -> Iterator[str]:
    """The lines of `render_job_status`."""
    job = status.job
    stops = " (to be cancelled)" if job.status == "processing" and job.cancel_requested_at else ""
    yield f"Job {job.id}: {job.status}{stops}, {job.attempts} of {job.max_attempts} attempts used"
    if job.next_attempt_at:
        yield f"Next attempt: not before {job.next_attempt_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if error := job.last_error:  # its message or reason; never which worker had the job
        yield f"Error: {one_line(str(error.get('message') or error.get('reason') or 'unknown'), _MAX_SENTENCE_CHARS)}"
    if status.numbers:
        yield f"Observations: {', '.join(f'#{number}' for number in status.numbers)}"
    elif job.outcome == "observed":
        yield "Observations: none is left, they were deleted"
    if job.outcome_reason:
        yield f"Reason: {one_line(explain_outcome(job.source_type, job.outcome_reason), _MAX_SENTENCE_CHARS)}"
