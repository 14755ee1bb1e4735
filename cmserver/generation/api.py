"""HTTP handlers for jobs: list, show, retry, cancel, and request a reindex."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.access.teams import NO_SUCH as NO_SUCH_TEAM
from cmserver.base.errors import Forbidden, Invalid, NotFound
from cmserver.base.http.operation import get, post
from cmserver.base.http.wire import answer, caller, db, dependency, query
from cmserver.base.http.wire import read as read_body
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


class JobQuery(msgspec.Struct, kw_only=True):
    """`include=payload` needs the scope admin."""

    include: Include | None = None


class JobEventsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of a job's events."""

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


async def get_jobs(request: Request) -> Response:
    """A page of jobs, newest first; without `project`, of all projects that the key may see."""
    principal, params = await caller(request, Principal), query(request, JobsQuery)
    return await _list_jobs(request, principal, params, await dependency(request, Projects).within(principal, params.project))


async def get_team_jobs(request: Request) -> Response:
    """A page of jobs of the key's own team, named by its id or name."""
    principal, params = await caller(request, Principal), query(request, JobsQuery)
    if str(request.path_params["team"]) not in {str(principal.team_id), principal.team_name}:
        raise NotFound(NO_SUCH_TEAM)
    return await _list_jobs(request, principal, params, await dependency(request, Projects).within(principal, params.project))


async def get_project_jobs(request: Request) -> Response:
    """A page of jobs of one project."""
    principal, params = await caller(request, Principal), query(request, JobsQuery)
    project = await dependency(request, Projects).find(principal, str(request.path_params["project"]))
    return await _list_jobs(request, principal, params, project.id)


async def get_job(request: Request) -> Response:
    """One job, with its newest provider call."""
    principal = await caller(request, Principal)
    params = query(request, JobQuery)
    _check_include(principal, params.include)
    async with db(request).tenant(principal.team_id) as conn:
        job = await manage_jobs.find_job(conn, principal, str(request.path_params["id"]))
        payloads = await _load_payloads(conn, principal, [job], params.include)
        runs = await queue.runs(conn, job, limit=1, with_answer=params.include is not None)
    return answer(
        wire.JobDetailOut(
            generation_job=wire.job_out_with_details(job, payloads.get(job.id)),
            run=wire.run_out(runs[0], with_answer=params.include is not None) if runs else None,
        )
    )


async def get_job_events(request: Request) -> Response:
    """The events of a job, oldest first."""
    principal = await caller(request, Principal)
    params = query(request, JobEventsQuery)
    async with db(request).tenant(principal.team_id) as conn:
        job_id = str(request.path_params["id"])
        events, cursor = await manage_jobs.list_job_events(conn, principal, job_id, limit=params.limit, cursor=params.cursor)
    return answer(wire.JobEventsOut(events=[wire.job_event_out(event) for event in events], next_cursor=cursor))


async def get_job_calls(request: Request) -> Response:
    """The calls of providers that a job made, newest first; their answers with `include=payload`, where they are kept."""
    principal = await caller(request, Principal)
    params = query(request, JobQuery)
    _check_include(principal, params.include)
    async with db(request).tenant(principal.team_id) as conn:
        runs = await manage_jobs.list_runs(conn, principal, str(request.path_params["id"]), with_answer=params.include is not None)
    return answer(wire.JobCallsOut(calls=[wire.run_out(run, with_answer=params.include is not None) for run in runs]))


async def get_lanes(request: Request) -> Response:
    """The lanes that have work: whether a worker has them, and what they wait for."""
    principal = await caller(request, Principal)
    params = query(request, LanesQuery)
    project_id = await dependency(request, Projects).within(principal, params.project)
    async with db(request).tenant(principal.team_id) as conn:
        lanes = await queue.lanes(conn, principal.team_id, project_id=project_id, state=params.state, limit=params.limit)
        projects: dict[UUID, str] = {}
        labels: dict[UUID, SessionLabel] = {}
        if principal.may("observations:read"):
            projects = await access.names_of(conn, principal.team_id, {lane.project_id for lane in lanes})
            session_ids = {lane.session_id for lane in lanes if lane.session_id}
            labels = await sessions.labels(conn, principal.team_id, session_ids, unless_isolated=project_id is None)
    return answer(
        wire.LanesOut(
            lanes=[
                wire.lane_out(lane, projects.get(lane.project_id), labels.get(lane.session_id) if lane.session_id else None)
                for lane in lanes
            ]
        )
    )


async def get_workers(request: Request) -> Response:
    """The workers of the whole server, and their leases."""
    await caller(request, Principal)
    async with db(request).system() as conn:
        workers = await leases.WORKERS.all(conn)
    return answer(wire.WorkersOut(workers=[reshape(worker, wire.WorkerRowOut) for worker in workers]))


async def post_jobs_retry(request: Request) -> Response:
    """Queue up to 1,000 failed or cancelled jobs again, with three more attempts each; with `dryRun` only count them."""
    return await _change_jobs(request, manage_jobs.retry_jobs)


async def post_jobs_cancel(request: Request) -> Response:
    """Cancel up to 1,000 queued or running jobs, which write nothing; with `dryRun` only count them."""
    return await _change_jobs(request, manage_jobs.cancel_jobs)


async def _change_jobs(request: Request, change: Callable[..., Awaitable[SelectionResult]]) -> Response:
    """`manage.retry_jobs` or `cancel_jobs` for what the body selects."""
    principal = await caller(request, Principal)
    body = await read_body(request, JobSelectionIn)
    project_id = principal.project_id
    if body.project_id is not None:
        project_id = (await dependency(request, Projects).named_or_own(principal, body.project_id, at="$.projectId")).id
    selection = await manage_jobs.resolve_filter(
        db(request), principal, body, project_id=project_id, session=body.session_id, since=body.since, ids=body.job_ids
    )
    result = await change(db(request), dependency(request, JobNotifier), principal, selection, dry_run=body.dry_run)
    changed = len(result.changed)
    return answer(reshape(result, wire.SelectedJobsOut, changed=changed, has_more=result.has_more, request_id=request_id()))


async def post_job_retry(request: Request) -> Response:
    """Queue a failed or cancelled job again, with three more attempts."""
    principal = await caller(request, Principal)
    notifier = dependency(request, JobNotifier)
    job, is_new = await manage_jobs.retry_job(db(request), notifier, principal, str(request.path_params["id"]))
    return answer(
        wire.RetriedJobOut(
            generation_job=wire.job_out_with_details(job),
            retried_count=int(is_new),
            already_queued=not is_new,
            request_id=request_id(),
        )
    )


async def post_job_cancel(request: Request) -> Response:
    """Cancel a queued or running job; it writes nothing."""
    principal = await caller(request, Principal)
    notifier = dependency(request, JobNotifier)
    job, is_new = await manage_jobs.cancel_job(db(request), notifier, principal, str(request.path_params["id"]))
    return answer(
        wire.CancelledJobOut(generation_job=wire.job_out_with_details(job), already_cancelled=not is_new, request_id=request_id())
    )


async def post_reindex(request: Request) -> Response:
    """Recompute the search columns of an observation, a session or a project; a queued request is returned as it is."""
    principal = await caller(request, Principal)
    target = await _resolve_target(request, principal, await read_body(request, ReindexIn))
    job, is_new = await db(request).in_tenant(principal.team_id, lambda conn: reindex.request_reindex(conn, principal, target))
    if is_new:
        dependency(request, JobNotifier).notify_due()
    return answer(wire.SingleJobOut(generation_job=wire.job_out_with_details(job)), 202)


async def _list_jobs(request: Request, principal: Principal, params: JobsQuery, project_id: UUID | None) -> Response:
    """Answer with a page of the jobs that match the parameters."""
    _check_include(principal, params.include)
    criteria = await manage_jobs.resolve_filter(
        db(request), principal, params, project_id=project_id, session=params.session, since=params.since
    )
    async with db(request).tenant(principal.team_id) as conn:
        page = await manage_jobs.list_jobs(
            conn, principal, criteria, limit=params.limit, offset=params.offset, cursor=params.cursor
        )
        payloads = await _load_payloads(conn, principal, page.jobs, params.include)
        projects, labels = await _load_names(conn, principal, page.jobs, project_id)
    return answer(
        wire.JobsOut(
            jobs=[
                wire.listed_job_out(
                    job,
                    payloads.get(job.id),
                    projects.get(job.project_id),
                    labels.get(job.server_session_id) if job.server_session_id else None,
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


async def _resolve_target(request: Request, principal: Principal, body: ReindexIn) -> reindex.ReindexTarget:
    """What the body asks to reindex; NotFound when the key does not see it."""
    if sum(value is not None for value in (body.project_id, body.session_id, body.observation)) > 1:
        raise Invalid.at("$", "Name one thing to reindex: a project, a session or an observation.")
    if body.session_id is None and body.observation is None:
        project = await dependency(request, Projects).named_or_own(principal, body.project_id, at="$.projectId")
        return reindex.ReindexTarget(project_id=project.id, scope="project", source_id=project.id)
    async with db(request).tenant(principal.team_id) as conn:
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
    get("/v1/jobs", get_jobs, "jobs:read", wire.JobsOut, query=JobsQuery),
    post("/v1/jobs/retry", post_jobs_retry, "jobs:write", wire.SelectedJobsOut, body=JobSelectionIn),
    post("/v1/jobs/cancel", post_jobs_cancel, "jobs:write", wire.SelectedJobsOut, body=JobSelectionIn),
    get("/v1/jobs/{id}", get_job, "jobs:read", wire.JobDetailOut, query=JobQuery),
    get("/v1/jobs/{id}/events", get_job_events, "jobs:read", wire.JobEventsOut, query=JobEventsQuery),
    get("/v1/jobs/{id}/calls", get_job_calls, "jobs:read", wire.JobCallsOut, query=JobQuery),
    get("/v1/lanes", get_lanes, "jobs:read", wire.LanesOut, query=LanesQuery),
    get("/v1/workers", get_workers, "*", wire.WorkersOut),
    post("/v1/jobs/{id}/retry", post_job_retry, "jobs:write", wire.RetriedJobOut),
    post("/v1/jobs/{id}/cancel", post_job_cancel, "jobs:write", wire.CancelledJobOut),
    get("/v1/teams/{team}/jobs", get_team_jobs, "jobs:read", wire.JobsOut, query=JobsQuery),
    get("/v1/projects/{project:path}/jobs", get_project_jobs, "jobs:read", wire.JobsOut, query=JobsQuery),
    post("/v1/reindex", post_reindex, "jobs:write", wire.SingleJobOut, status=202, body=ReindexIn),
]
