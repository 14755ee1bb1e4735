"""Jobs: the list with its filters, one job's life with its provider calls, retry and cancel of one or many."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid
from cmserver.base.sql import Conn
from cmserver.base.text import Key
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects, names_of_work
from cmserver.doors.web.templates import format_json
from cmserver.doors.web.visit import Visit
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import Job, Status
from cmserver.generation.operate import manage as manage_jobs
from cmserver.generation.operate import repository as queue
from cmserver.generation.operate.model import MAX_SELECTED, JobFilter, SourceType
from cmserver.generation.operate.words import explain_details, explain_error, explain_help, explain_outcome
from cmserver.observations import repository as observations
from cmserver.observations.read import audit_read

PAGE_ROWS = 50
_LOG_ROWS = 200
_MAX_COUNTED = 1_000

SOURCES: dict[str, str] = {
    "agent_event": "event",
    "session_summary": "session summary",
    "observation_reindex": "reindex",
    "turn": "entities of a turn",
    "steward": "step of the steward",
}
"""What a job is made of, in words."""
STATES: tuple[Status, ...] = ("queued", "processing", "failed", "completed", "cancelled")
BADGES: dict[str, str] = {"completed": "good", "failed": "bad", "processing": "info", "queued": "", "cancelled": "warn"}
CALL_BADGES: dict[str, str] = {
    "applied": "good",
    "answered": "info",
    "asked": "info",
    "failed": "bad",
    "unusable": "bad",
    "lost": "warn",
}


class JobFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters in the address."""

    status: Status | None = None
    source_type: SourceType | None = None
    project: str | None = None
    session: Key | None = None
    since: str | None = None
    cursor: str | None = None


class SelectionForm(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with which jobs: those of the ids, or without any all that match, unless it is for `chosen` ones only."""

    act: Literal["retry", "cancel"]
    chosen: bool = False
    status: Status | None = None
    source_type: SourceType | None = None
    project: str | None = None
    session: Key | None = None
    since: str | None = None
    id: Annotated[list[UUID], Meta(max_length=MAX_SELECTED)] = []


class ShownJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with the names of its project and its session, and in words why it waits, failed, or ended as it did."""

    job: Job
    project: str
    session: str
    why: str
    helps: str
    """What one can do about it when it failed."""


async def get_jobs(visit: Visit) -> Response:
    """The jobs of the queue by state, with filters, and what can be retried or cancelled."""
    filters = visit.query(JobFilters)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, filters.project)
    criteria = await manage_jobs.resolve_filter(
        visit.db, principal, filters, project_id=project_id, session=filters.session, since=filters.since
    )
    async with visit.tenant() as conn:
        page = await manage_jobs.list_jobs(conn, principal, criteria, limit=PAGE_ROWS, cursor=filters.cursor)
        everything = JobFilter(project_id=project_id)
        counts = [
            (status, await queue.count(conn, principal.team_id, everything, _MAX_COUNTED + 1, statuses=[status]))
            for status in STATES
        ]
        hours = await queue.queue_hours(conn, principal.team_id, project_id)
        projects = await list_projects(conn, principal)
        rows = await name_jobs(conn, visit, page.jobs, project_id)
        offers = await _find_offers(conn, visit, criteria) if visit.may("jobs:write") else []
    return visit.render(
        "jobs.html",
        title="Jobs",
        rows=rows,
        page=page,
        counts=counts,
        hours=[(f"{hour.hour:%H:00}", hour.came, f"{hour.came:,} came, {hour.ended:,} ended", hour.ended) for hour in hours],
        max_counted=_MAX_COUNTED,
        offers=offers,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        projects=projects,
        sources=SOURCES,
        badges=BADGES,
    )


class JobOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An act on all jobs that match the filter: how many they are, in words."""

    act: Literal["retry", "cancel"]
    text: str


async def _find_offers(conn: Conn, visit: Visit, criteria: JobFilter) -> list[JobOffer]:
    """What can be done with all that match, as `get_selection` counts them."""
    principal, offers = visit.principal, list[JobOffer]()
    counted = msgspec.structs.replace(criteria, with_steward=principal.may("admin"), status=None)
    acts: list[tuple[Literal["retry", "cancel"], list[Status], str]] = [
        ("retry", ["cancelled"] if criteria.status == "cancelled" else ["failed"], "Retry"),
        ("cancel", ["queued", "processing"], "Cancel"),
    ]
    for act, states, verb in acts:
        statuses: list[Status] = [status for status in states if criteria.status in (None, status)]
        count = await queue.count(conn, principal.team_id, counted, _MAX_COUNTED + 1, statuses=statuses) if statuses else 0
        if count:
            number = f"more than {_MAX_COUNTED:,}" if count > _MAX_COUNTED else f"{count:,}"
            words = " or ".join("running" if status == "processing" else status for status in statuses)
            offers.append(JobOffer(act=act, text=f"{verb} {number} {words}\u2026"))
    return offers


async def get_selection(visit: Visit) -> Response:
    """How many jobs would be retried or cancelled, before it is done."""
    query = visit.query(SelectionForm)
    if query.chosen and not query.id:
        raise Invalid.at("$.id", "No job is chosen. Go back, and tick those that you mean.")
    principal = visit.principal
    selection = await _resolve_selection(visit, query)
    act = manage_jobs.retry_jobs if query.act == "retry" else manage_jobs.cancel_jobs
    result = await act(visit.db, visit.dependency(JobNotifier), principal, selection, dry_run=True)
    return visit.render(
        "jobs_selected.html",
        title="Retry jobs" if query.act == "retry" else "Cancel jobs",
        query=query,
        result=result,
        max_selected=MAX_SELECTED,
        sources=SOURCES,
    )


async def post_selection(visit: Visit) -> Response:
    """Retry or cancel the chosen jobs."""
    form = await visit.form(SelectionForm)
    principal = visit.principal
    selection = await _resolve_selection(visit, form)
    act = manage_jobs.retry_jobs if form.act == "retry" else manage_jobs.cancel_jobs
    result = await act(visit.db, visit.dependency(JobNotifier), principal, selection, dry_run=False)
    count = len(result.changed)
    done = "queued again" if form.act == "retry" else "cancelled"
    return visit.redirect("/ui/jobs", f"{count:,} job{' was' if count == 1 else 's were'} {done}.")


async def get_job(visit: Visit) -> Response:
    """One job's whole life: its log, the provider calls it made, its errors and its observations."""
    principal = visit.principal
    sees_texts = principal.may("admin")
    async with visit.tenant() as conn:
        status = await manage_jobs.find_job_status(conn, principal, visit.parameter("id"))
        job = status.job
        job_id = str(job.id)
        events, _ = await manage_jobs.list_job_events(conn, principal, job_id, limit=_LOG_ROWS, cursor=None)
        runs = await manage_jobs.list_runs(conn, principal, job_id, with_answer=sees_texts)
        payloads = await queue.payloads(conn, principal.team_id, [job.id]) if sees_texts else {}
        (row,) = await name_jobs(conn, visit, [job], job.project_id)
        titles = (
            await observations.by_numbers(conn, principal.team_id, status.numbers) if principal.may("observations:read") else []
        )
        await audit_read(conn, principal, job.project_id, "list", titles)
    payload = payloads.get(job.id)
    return visit.render(
        "job.html",
        title=f"Job of {row.project or 'a project'}",
        row=row,
        job=job,
        events=events,
        explain_details=explain_details,
        explain_error=explain_error,
        runs=runs,
        payload=payload,
        payload_text=format_json(payload.event_payload) if payload and payload.event_id else "",
        about=format_json(payload.payload) if payload and job.source_type == "steward" else "",
        numbers=status.numbers,
        titles=titles,
        sees_texts=sees_texts,
        sources=SOURCES,
        badges=BADGES,
        call_badges=CALL_BADGES,
    )


async def post_retry(visit: Visit) -> Response:
    """Queue a failed or cancelled job again."""
    notifier = visit.dependency(JobNotifier)
    job, is_new = await manage_jobs.retry_job(visit.db, notifier, visit.principal, visit.parameter("id"))
    return visit.redirect(f"/ui/jobs/{job.id}", "The job is queued again." if is_new else "The job was queued already.")


async def post_cancel(visit: Visit) -> Response:
    """Cancel a queued or running job."""
    notifier = visit.dependency(JobNotifier)
    job, _ = await manage_jobs.cancel_job(visit.db, notifier, visit.principal, visit.parameter("id"))
    return visit.redirect(
        f"/ui/jobs/{job.id}",
        "The job is being stopped; it writes nothing." if job.status == "processing" else "The job is cancelled.",
    )


async def name_jobs(conn: Conn, visit: Visit, jobs: list[Job], project_id: UUID | None) -> list[ShownJob]:
    """The jobs with the names of their projects and sessions; `project_id` is the one whose list it is."""
    projects, titles = await names_of_work(
        conn, visit.principal, [job.project_id for job in jobs], [job.server_session_id for job in jobs], of_project=project_id
    )
    waits = await manage_jobs.explain_jobs(conn, jobs)
    return [
        ShownJob(
            job=job,
            project=projects.get(job.project_id, ""),
            session=titles.get(job.server_session_id, "A session") if job.server_session_id else "",
            why=waits.get(job.id) or explain_error(job.last_error) or explain_outcome(job.source_type, job.outcome_reason),
            helps=explain_help(job.last_error) if job.status == "failed" else "",
        )
        for job in jobs
    ]


async def _resolve_selection(visit: Visit, query: SelectionForm) -> JobFilter:
    project_id = await visit.dependency(Projects).within(visit.principal, query.project)
    wanted = msgspec.structs.replace(query, status=None) if query.id else query
    return await manage_jobs.resolve_filter(
        visit.db, visit.principal, wanted, project_id=project_id, session=query.session, since=query.since, ids=query.id or None
    )


routes = [
    Page("GET", "/ui/jobs", get_jobs, scope="jobs:read"),
    Page("GET", "/ui/jobs/selected", get_selection, scope="jobs:write"),
    Page("POST", "/ui/jobs/selected", post_selection, scope="jobs:write"),
    Page("GET", "/ui/jobs/{id}", get_job, scope="jobs:read"),
    Page("POST", "/ui/jobs/{id}/retry", post_retry, scope="jobs:write", form_of=get_job),
    Page("POST", "/ui/jobs/{id}/cancel", post_cancel, scope="jobs:write", form_of=get_job),
]
