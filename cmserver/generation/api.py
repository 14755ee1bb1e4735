"""HTTP handlers for jobs: list, show, retry, cancel, and request a reindex."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.access import repository as access
from cmserver.access import verb
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.access.teams import NO_SUCH as NO_SUCH_TEAM
from cmserver.access.verb import VerbCall, command, option
from cmserver.base.columns import Columns
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Invalid, NotFound
from cmserver.base.ids import request_id
from cmserver.base.paging import Limit
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import Key, Line
from cmserver.generation import reindex, wire
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.generation.model import Job, Status
from cmserver.generation.operate import manage as manage_jobs
from cmserver.generation.operate import repository as queue
from cmserver.generation.operate.manage import SelectionResult
from cmserver.generation.operate.model import MAX_SELECTED, LaneState, Payload, SourceType
from cmserver.generation.operate.words import explain_error, explain_hold
from cmserver.observations.read import NO_SUCH as NO_SUCH_OBSERVATION
from cmserver.observations.read import find_observation
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import SessionLabel
from cmserver.sessions.read import find_session

Include = Literal["payload"]


class JobsQuery(msgspec.Struct, kw_only=True):
    """`session` is the session's id, here or at its agent; `since` is a time in ISO 8601, UTC by default; `status` is which to
    list; `source_type` is which to list, by what they were made for; `job_type` is which to list, by what is done.

    `include=payload` needs the scope admin.
    """

    status: Status | None = None
    source_type: SourceType | None = None
    job_type: Key | None = None
    project: str | None = None
    session: Key | None = None
    since: Line | None = None
    limit: Limit = 50
    offset: Annotated[int, Meta(ge=0)] = 0
    cursor: str | None = None
    include: Include | None = None


class TeamJobsQuery(JobsQuery, kw_only=True):
    __doc__ = JobsQuery.__doc__

    team: str


class ProjectJobsQuery(JobsQuery, kw_only=True):
    __doc__ = JobsQuery.__doc__


class JobQuery(msgspec.Struct, kw_only=True):
    """`include=payload` needs the scope admin."""

    id: str
    include: Include | None = None


class JobEventsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of a job's events."""

    id: str
    limit: Limit = 50
    cursor: str | None = None


class JobSelectionIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Which jobs: those that match all that is sent. `dryRun` is whether they are only counted; `status` is which to choose;
    `sessionId` is the session by its id here or the agent's own; `jobType` is which to choose, by what is done.

    Without `status`, a retry takes failed jobs (with `jobIds` also cancelled ones), and a cancel takes queued and running ones.
    """

    status: Status | None = None
    source_type: SourceType | None = None
    job_type: Key | None = None
    project_id: Key | None = None
    session_id: Key | None = None
    since: Line | None = None
    job_ids: Annotated[list[UUID], Meta(min_length=1, max_length=MAX_SELECTED)] | None = None
    dry_run: bool = False


class LanesQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Lanes of one project, or in one state: `state` is which to list."""

    project: str | None = None
    state: LaneState | None = None
    limit: Limit = 100


class ReindexIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """At most one of the three; without any, the project that the key is bound to. `observation` is a number or an id."""

    project_id: Key | None = None
    session_id: UUID | None = None
    observation: Key | int | None = None


_COLUMNS = Columns(
    wire.ListedJobOut,
    "project, session, of, status, tries, created, id, why",
    of=lambda job: f"steward: {job.job_type}" if job.source_type == "steward" else job.source_type,
    project=lambda job: job.project or job.project_id,
    session=lambda job: job.session_title or job.server_session_id,
    tries=lambda job: f"{job.attempts}/{job.max_attempts}",
    why=lambda job: job.waits_for or explain_error(job.last_error),
)


_LANE_COLUMNS = Columns(
    wire.LaneRowOut,
    "project, session, state, queued, due, held until, because, lane=id",
    project=lambda lane: lane.project or lane.project_id,
    session=lambda lane: lane.session_title or lane.session_id,
    because=lambda lane: explain_hold(lane.held_for, lane.held_reason) if lane.state == "held" else None,
)


_WORKER_COLUMNS = Columns(
    wire.WorkerRowOut,
    "worker=worker_id, label, state, lanes, heartbeat=last_heartbeat, lease, started",
    state=lambda worker: "alive" if worker.alive else "lost",
    lease=lambda worker: f"{worker.lease_seconds:g} s",
)


_SHOW_JOBS = _COLUMNS.page("jobs", "There are no such jobs.", shrink=("project", "session", "why"))


@command("jobs failed", _SHOW_JOBS, text="List the jobs that have failed for good, and why.", sets={"status": "failed"})
@option("--project", "Only jobs of this project.")
@command("jobs list", _SHOW_JOBS, text="List the team's jobs, newest first.")
@option("--status", "Only jobs with this status.")
@option("--project", "Only jobs of this project.")
@option("--session", "Only jobs of this session.", metavar="ID")
@option("--source", "Only jobs that were made for this.", field="source_type")
@option("--type", "Only jobs that do this, such as the steward's auto_merge.", field="job_type", metavar="TYPE")
@verb.get("/v1/jobs", "jobs:read")
async def get_jobs(call: VerbCall, given: JobsQuery) -> wire.JobsOut:
    """A page of jobs, newest first; without `project`, of all projects that the key may see."""
    return await _list_jobs(call, given, await call.dependency(Projects).within(call.principal, given.project))


@verb.get("/v1/teams/{team}/jobs", "jobs:read")
async def get_team_jobs(call: VerbCall, given: TeamJobsQuery) -> wire.JobsOut:
    """A page of jobs of the key's own team, named by its id or name."""
    if given.team not in {str(call.principal.team_id), call.principal.team_name}:
        raise NotFound(NO_SUCH_TEAM)
    return await _list_jobs(call, given, await call.dependency(Projects).within(call.principal, given.project))


@verb.get("/v1/projects/{project:path}/jobs", "jobs:read")
async def get_project_jobs(call: VerbCall, given: ProjectJobsQuery) -> wire.JobsOut:
    """A page of jobs of one project."""
    project = await call.dependency(Projects).find(call.principal, str(given.project))
    return await _list_jobs(call, given, project.id)


@verb.get("/v1/jobs/{id}", "jobs:read")
async def get_job(call: VerbCall, given: JobQuery) -> wire.JobDetailOut:
    """One job, with its newest provider call."""
    principal, with_answer = call.principal, given.include is not None
    _check_include(principal, given.include)
    async with call.read() as conn:
        job = await manage_jobs.find_job(conn, principal, given.id)
        payloads = await _load_payloads(conn, principal, [job], given.include)
        runs = await queue.runs(conn, job, limit=1, with_answer=with_answer)
        waits = await manage_jobs.explain_jobs(conn, [job])
    return wire.JobDetailOut(
        generation_job=wire.job_out_with_details(job, payloads.get(job.id), waits.get(job.id)),
        run=wire.run_out(runs[0], with_answer=with_answer) if runs else None,
    )


@verb.get("/v1/jobs/{id}/events", "jobs:read")
async def get_job_events(call: VerbCall, given: JobEventsQuery) -> wire.JobEventsOut:
    """The events of a job, oldest first."""
    async with call.read() as conn:
        events, cursor = await manage_jobs.list_job_events(conn, call.principal, given.id, limit=given.limit, cursor=given.cursor)
    return wire.JobEventsOut(events=[wire.job_event_out(event) for event in events], next_cursor=cursor)


@verb.get("/v1/jobs/{id}/calls", "jobs:read")
async def get_job_calls(call: VerbCall, given: JobQuery) -> wire.JobCallsOut:
    """The calls of providers that a job made, newest first; their answers with `include=payload`, where they are kept."""
    with_answer = given.include is not None
    _check_include(call.principal, given.include)
    async with call.read() as conn:
        runs = await manage_jobs.list_runs(conn, call.principal, given.id, with_answer=with_answer)
    return wire.JobCallsOut(calls=[wire.run_out(run, with_answer=with_answer) for run in runs])


@command(
    "jobs lanes",
    _LANE_COLUMNS.page("lanes", "No lane has work.", shrink=("project", "session", "because")),
    text="List the lanes that have work, and what they wait for. A lane is the queue of one session, or of the steward's project.",
)
@option("--project", "Only lanes of this project.")
@option("--state", "Only lanes in this state.")
@option("--limit", "The maximum number of rows.")
@verb.get("/v1/lanes", "jobs:read")
async def get_lanes(call: VerbCall, given: LanesQuery) -> wire.LanesOut:
    """The lanes that have work: whether a worker has them, and what they wait for."""
    principal = call.principal
    project_id = await call.dependency(Projects).within(principal, given.project)
    async with call.read() as conn:
        lanes = await queue.lanes(conn, principal.team_id, project_id=project_id, state=given.state, limit=given.limit)
        projects: dict[UUID, str] = {}
        labels: dict[UUID, SessionLabel] = {}
        if principal.may("observations:read"):
            projects = await access.names_of(conn, principal.team_id, {lane.project_id for lane in lanes})
            session_ids = {lane.session_id for lane in lanes if lane.session_id}
            labels = await sessions.labels(conn, principal.team_id, session_ids, unless_isolated=project_id is None)
    return wire.LanesOut(
        lanes=[
            wire.lane_out(lane, projects.get(lane.project_id), labels.get(lane.session_id) if lane.session_id else None)
            for lane in lanes
        ]
    )


@command(
    "jobs workers",
    _WORKER_COLUMNS.page("workers", "No worker runs: events are stored and wait.", shrink=("label",)),
    text="List the workers of the server and their leases; needs the scope `*`.",
)
@verb.get("/v1/workers", "*")
async def get_workers(call: VerbCall) -> wire.WorkersOut:
    """The workers of the whole server, and their leases."""
    async with call.dependency(Db).system() as conn:
        workers = await leases.WORKERS.all(conn)
    return wire.WorkersOut(workers=[reshape(worker, wire.WorkerRowOut) for worker in workers])


@verb.post("/v1/jobs/retry", "jobs:write")
async def post_jobs_retry(call: VerbCall, given: JobSelectionIn) -> wire.SelectedJobsOut:
    """Queue up to 1,000 failed or cancelled jobs again, with three more attempts each; with `dryRun` only count them."""
    return await _change_jobs(call, given, manage_jobs.retry_jobs)


@verb.post("/v1/jobs/cancel", "jobs:write")
async def post_jobs_cancel(call: VerbCall, given: JobSelectionIn) -> wire.SelectedJobsOut:
    """Cancel up to 1,000 queued or running jobs, which write nothing; with `dryRun` only count them."""
    return await _change_jobs(call, given, manage_jobs.cancel_jobs)


async def _change_jobs(
    call: VerbCall, given: JobSelectionIn, change: Callable[..., Awaitable[SelectionResult]]
) -> wire.SelectedJobsOut:
    """`manage.retry_jobs` or `cancel_jobs` for what the body selects."""
    principal, db = call.principal, call.dependency(Db)
    project_id = principal.project_id
    if given.project_id is not None:
        project_id = (await call.dependency(Projects).named_or_own(principal, given.project_id, at="$.projectId")).id
    selection = await manage_jobs.resolve_filter(
        db, principal, given, project_id=project_id, session=given.session_id, since=given.since, ids=given.job_ids
    )
    result = await change(db, call.dependency(JobNotifier), principal, selection, dry_run=given.dry_run)
    changed = len(result.changed)
    return reshape(result, wire.SelectedJobsOut, changed=changed, has_more=result.has_more, request_id=request_id())


@verb.post("/v1/jobs/{id}/retry", "jobs:write")
async def post_job_retry(call: VerbCall, given: str) -> wire.RetriedJobOut:
    """Queue a failed or cancelled job again, with three more attempts."""
    job, is_new = await manage_jobs.retry_job(call.dependency(Db), call.dependency(JobNotifier), call.principal, given)
    return wire.RetriedJobOut(
        generation_job=wire.job_out_with_details(job),
        retried_count=int(is_new),
        already_queued=not is_new,
        request_id=request_id(),
    )


@verb.post("/v1/jobs/{id}/cancel", "jobs:write")
async def post_job_cancel(call: VerbCall, given: str) -> wire.CancelledJobOut:
    """Cancel a queued or running job; it writes nothing."""
    job, is_new = await manage_jobs.cancel_job(call.dependency(Db), call.dependency(JobNotifier), call.principal, given)
    return wire.CancelledJobOut(
        generation_job=wire.job_out_with_details(job), already_cancelled=not is_new, request_id=request_id()
    )


@verb.post("/v1/reindex", "jobs:write", status=202)
async def post_reindex(call: VerbCall, given: ReindexIn) -> wire.SingleJobOut:
    """Recompute the search columns of an observation, a session or a project; a queued request is returned as it is."""
    target = await _resolve_target(call, given)
    job, is_new = await call.write(lambda conn: reindex.request_reindex(conn, call.principal, target))
    if is_new:
        call.dependency(JobNotifier).notify_due()
    return wire.SingleJobOut(generation_job=wire.job_out_with_details(job))


async def _list_jobs(call: VerbCall, params: JobsQuery, project_id: UUID | None) -> wire.JobsOut:
    """A page of the jobs that match the parameters."""
    principal = call.principal
    _check_include(principal, params.include)
    criteria = await manage_jobs.resolve_filter(
        call.dependency(Db), principal, params, project_id=project_id, session=params.session, since=params.since
    )
    async with call.read() as conn:
        page = await manage_jobs.list_jobs(
            conn, principal, criteria, limit=params.limit, offset=params.offset, cursor=params.cursor
        )
        payloads = await _load_payloads(conn, principal, page.jobs, params.include)
        projects, labels = await _load_names(conn, principal, page.jobs, project_id)
        waits = await manage_jobs.explain_jobs(conn, page.jobs)
    return wire.JobsOut(
        jobs=[
            wire.listed_job_out(
                job,
                payloads.get(job.id),
                projects.get(job.project_id),
                labels.get(job.server_session_id) if job.server_session_id else None,
                waits.get(job.id),
            )
            for job in page.jobs
        ],
        total=page.total,
        total_is_capped=page.total_is_capped,
        limit=params.limit,
        offset=params.offset,
        next_cursor=page.next_cursor,
        request_id=request_id(),
    )


async def _load_names(
    conn: Conn, principal: Principal, jobs: Sequence[Job], project_id: UUID | None
) -> tuple[dict[UUID, str], dict[UUID, SessionLabel]]:
    """The jobs' projects and sessions by what a person knows them by; none for a key that may not read the memory.

    A list of the team, without `project_id`, has no texts of isolated projects.
    """
    if not principal.may("observations:read"):
        return {}, {}
    projects = await access.names_of(conn, principal.team_id, {job.project_id for job in jobs})
    session_ids = {job.server_session_id for job in jobs if job.server_session_id}
    return projects, await sessions.labels(conn, principal.team_id, session_ids, unless_isolated=project_id is None)


async def _resolve_target(call: VerbCall, body: ReindexIn) -> reindex.ReindexTarget:
    """What the body asks to reindex; NotFound when the key does not see it."""
    principal = call.principal
    if sum(value is not None for value in (body.project_id, body.session_id, body.observation)) > 1:
        raise Invalid.at("$", "Name one thing to reindex: a project, a session or an observation.")
    if body.session_id is None and body.observation is None:
        project = await call.dependency(Projects).named_or_own(principal, body.project_id, at="$.projectId")
        return reindex.ReindexTarget(project_id=project.id, scope="project", source_id=project.id)
    async with call.read() as conn:
        if body.session_id is not None:
            session = await find_session(conn, principal, str(body.session_id))
            return reindex.ReindexTarget(project_id=session.project_id, scope="session", source_id=session.id)
        observation = await find_observation(conn, principal, str(body.observation))
        if not principal.sees(observation.project_id):  # shared by another project: readable only
            raise NotFound(NO_SUCH_OBSERVATION)
        return reindex.ReindexTarget(project_id=observation.project_id, scope="observation", source_id=observation.id)


def _check_include(principal: Principal, include: Include | None) -> None:
    if include and not principal.may("admin"):
        raise Forbidden(
            "This key may not see payloads. Leave out `include`, or ask an owner of the team for a key with the scope admin."
        )


async def _load_payloads(conn: Conn, principal: Principal, jobs: Sequence[Job], include: Include | None) -> dict[UUID, Payload]:
    return await queue.payloads(conn, principal.team_id, [job.id for job in jobs]) if include else {}


routes = [
    get_jobs,
    post_jobs_retry,
    post_jobs_cancel,
    get_job,
    get_job_events,
    get_job_calls,
    get_lanes,
    get_workers,
    post_job_retry,
    post_job_cancel,
    get_team_jobs,
    get_project_jobs,
    post_reindex,
]
