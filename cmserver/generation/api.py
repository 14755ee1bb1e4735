"""The doors to jobs: lists of them, one of them and its life, sending back and cancelling, and asking for a reindex."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.access.teams import NO_SUCH as NO_SUCH_TEAM
from cmserver.base.errors import Forbidden, Invalid, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.base.http.wire import read as read_body
from cmserver.base.ids import epoch_ms, epoch_ms_or_none, from_iso
from cmserver.base.money import usd
from cmserver.base.paging import Limit
from cmserver.base.sql import Conn
from cmserver.base.text import Key
from cmserver.generation import reindex
from cmserver.generation.bell import Bell
from cmserver.generation.model import Status
from cmserver.generation.operate import act, read, repository
from cmserver.generation.operate.model import Filter, KnownJob, Payload, Run, SourceType, Step
from cmserver.observations import read as observations
from cmserver.sessions import read as sessions

Include = Literal["payload"]


class ListQuery(msgspec.Struct, kw_only=True):
    """`since` is a time in ISO 8601 (UTC, where it does not say). `include=payload` is for keys with the scope admin."""

    status: Status | None = None
    source_type: SourceType | None = None
    project: str | None = None
    since: str | None = None
    limit: Limit = 50
    offset: Annotated[int, Meta(ge=0)] = 0
    cursor: str | None = None
    include: Include | None = None


class OneQuery(msgspec.Struct, kw_only=True):
    """`include=payload` is for keys with the scope admin."""

    include: Include | None = None


class EventsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of a job's life."""

    limit: Limit = 50
    cursor: str | None = None


class ReindexIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """One of the three; a key that is bound to a project may leave all out, and means its project."""

    project_id: Key | None = None
    session_id: UUID | None = None
    observation: Key | int | None = None


class EventPayloadOut(msgspec.Struct, frozen=True, kw_only=True):
    """The event that a job is to be made of."""

    id: UUID
    type: str
    payload: object


class PayloadOut(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is to be made of: its own payload, and its event where it has one."""

    job: dict[str, object]
    event: EventPayloadOut | None


class JobRowOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A job in a list."""

    id: UUID
    project_id: UUID
    team_id: UUID
    source_type: str
    source_id: UUID
    status: Status
    attempts: int
    max_attempts: int
    created_at_epoch: int
    completed_at_epoch: int | None
    failed_at_epoch: int | None
    last_error: dict[str, object] | None
    payload: PayloadOut | UnsetType = UNSET


class KnownJobOut(JobRowOut, rename="camel", frozen=True, kw_only=True):
    """A job with all that is told of it. `bullmqJobId` is an older name of the id."""

    agent_event_id: UUID | None
    server_session_id: UUID | None
    job_type: str
    bullmq_job_id: UUID
    source_run: int
    outcome: str | None
    outcome_reason: str | None
    next_attempt_at_epoch: int | None
    cancel_requested_at_epoch: int | None
    cancelled_at_epoch: int | None
    updated_at_epoch: int


class ListOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page. `total` is counted up to 10,000."""

    jobs: list[JobRowOut]
    total: int
    total_is_capped: bool
    limit: int
    offset: int
    next_cursor: str | None
    request_id: str | None


class OneOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One job."""

    generation_job: KnownJobOut


class RunOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A call of a provider, which may have served other jobs as well: its tokens (those of the cache, too) are for all together.

    `status` is asked (the tokens are an estimate), answered, applied, unusable, failed, or lost with its worker; `costUsd` is null
    where no price is known. `answer`, with `include=payload`, is the provider's text while it is kept: until it is applied, and for
    good when it could not be used.
    """

    id: UUID
    provider: str
    model: str
    status: str
    error_class: str | None
    error_message: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: str | None
    """US dollars, as decimal text."""
    latency_ms: int
    created_at_epoch: int
    answer: str | UnsetType | None = UNSET


class DetailOut(OneOut, rename="camel", frozen=True, kw_only=True):
    """One job, and the newest call of a provider that was made for it."""

    run: RunOut | None


class RetriedOut(OneOut, rename="camel", frozen=True, kw_only=True):
    """The job, which is queued; `retriedCount` is 0 when it was before."""

    retried_count: int
    already_queued: bool
    request_id: str | None


class CancelledOut(OneOut, rename="camel", frozen=True, kw_only=True):
    """The job; one that is being worked on still says `processing`, and ends as cancelled."""

    already_cancelled: bool
    request_id: str | None


class StepOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One step of a job's life, and the state it led to."""

    id: str
    event_type: str
    status_after: Status
    attempt: int
    details: dict[str, object]
    created_at_epoch: int


class LifeOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Oldest first; `nextCursor` is null on the last page."""

    events: list[StepOut]
    next_cursor: str | None


async def get_jobs(request: Request) -> Response:
    """A page of jobs, newest first; without `project` those of all projects that the key may see."""
    who = await caller(request, Principal)
    asked = query(request, ListQuery)
    return await _listed(request, who, asked, await _projects(request).within(who, asked.project))


async def get_team_jobs(request: Request) -> Response:
    """The same of a team: the key's own, by id or name."""
    who = await caller(request, Principal)
    asked = query(request, ListQuery)
    if str(request.path_params["team"]) not in {str(who.team_id), who.team_name}:
        raise NotFound(NO_SUCH_TEAM)
    return await _listed(request, who, asked, await _projects(request).within(who, asked.project))


async def get_project_jobs(request: Request) -> Response:
    """The same of one project."""
    who = await caller(request, Principal)
    asked = query(request, ListQuery)
    project = await _projects(request).find(who, str(request.path_params["project"]))
    return await _listed(request, who, asked, project.id)


async def get_job(request: Request) -> Response:
    """One job, with the newest call of a provider that was made for it."""
    who = await caller(request, Principal)
    asked = query(request, OneQuery)
    _may_include(who, asked.include)
    async with db(request).tenant(who.team_id) as conn:
        job = await read.one(conn, who, str(request.path_params["id"]))
        payloads = await _payloads(conn, who, [job], asked.include)
        run = await repository.newest_run(conn, job, with_answer=asked.include is not None)
    return answer(
        DetailOut(
            generation_job=_known_job_out(job, payloads.get(job.id)),
            run=run and _run_out(run, with_answer=asked.include is not None),
        )
    )


async def get_job_events(request: Request) -> Response:
    """The steps of a job's life, oldest first."""
    who = await caller(request, Principal)
    asked = query(request, EventsQuery)
    async with db(request).tenant(who.team_id) as conn:
        steps, cursor = await read.life(conn, who, str(request.path_params["id"]), limit=asked.limit, cursor=asked.cursor)
    return answer(LifeOut(events=[_step_out(step) for step in steps], next_cursor=cursor))


async def post_job_retry(request: Request) -> Response:
    """Send a job that failed or was cancelled back to the queue, with three more attempts."""
    who = await caller(request, Principal)
    named = str(request.path_params["id"])
    job, is_new = await db(request).in_tenant(who.team_id, lambda conn: act.retry(conn, who, named))
    if is_new:
        _bell(request).ring()
    return answer(
        RetriedOut(
            generation_job=_known_job_out(job),
            retried_count=int(is_new),
            already_queued=not is_new,
            request_id=audit.request_id(),
        )
    )


async def post_job_cancel(request: Request) -> Response:
    """End a job that waits, or stop one that runs; it writes nothing."""
    who = await caller(request, Principal)
    named = str(request.path_params["id"])
    job, is_new = await db(request).in_tenant(who.team_id, lambda conn: act.cancel(conn, who, named))
    if is_new and job.status == "cancelled":
        _bell(request).done(job.lane)
    elif is_new:
        _bell(request).abort(job.id)
    return answer(CancelledOut(generation_job=_known_job_out(job), already_cancelled=not is_new, request_id=audit.request_id()))


async def post_reindex(request: Request) -> Response:
    """Compute the search columns of an observation, a session or a project anew; while that waits, asking again changes nothing."""
    who = await caller(request, Principal)
    target = await _target(request, who, await read_body(request, ReindexIn))
    most = cast("int", request.app.state.job_max_attempts)
    job, is_new = await db(request).in_tenant(who.team_id, lambda conn: reindex.ask(conn, who, target, max_attempts=most))
    if is_new:
        _bell(request).ring()
    return answer(OneOut(generation_job=_known_job_out(job)), 202)


async def _listed(request: Request, who: Principal, asked: ListQuery, project_id: UUID | None) -> Response:
    _may_include(who, asked.include)
    which = Filter(
        team_id=who.team_id,
        project_id=project_id,
        status=asked.status,
        source_type=asked.source_type,
        since=_moment(asked.since),
    )
    async with db(request).tenant(who.team_id) as conn:
        page = await read.page(conn, which, limit=asked.limit, offset=asked.offset, cursor=asked.cursor)
        payloads = await _payloads(conn, who, page.jobs, asked.include)
    return answer(
        ListOut(
            jobs=[_job_row_out(job, payloads.get(job.id)) for job in page.jobs],
            total=page.total,
            total_is_capped=page.total_is_capped,
            limit=asked.limit,
            offset=asked.offset,
            next_cursor=page.next_cursor,
            request_id=audit.request_id(),
        )
    )


async def _target(request: Request, who: Principal, asked: ReindexIn) -> reindex.Target:
    if sum(one is not None for one in (asked.project_id, asked.session_id, asked.observation)) > 1:
        raise Invalid.at("$", "Name one thing to reindex: a project, a session or an observation.")
    if asked.session_id is None and asked.observation is None:
        project = await _projects(request).named_or_own(who, asked.project_id, at="$.projectId")
        return reindex.Target(project_id=project.id, scope="project", source_id=project.id)
    async with db(request).tenant(who.team_id) as conn:
        if asked.session_id is not None:
            session = await sessions.one(conn, who, str(asked.session_id))
            return reindex.Target(project_id=session.project_id, scope="session", source_id=session.id)
        found = await observations.find(conn, who, str(asked.observation))
        if not who.sees(found.project_id):  # another project shares it: it may be read, and no more
            raise NotFound(observations.NO_SUCH)
        return reindex.Target(project_id=found.project_id, scope="observation", source_id=found.id)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return from_iso(text)
    except ValueError as error:
        raise Invalid.at("$.since", "This is no time in ISO 8601, such as 2026-11-22T08:00:00Z.") from error


def _may_include(who: Principal, include: Include | None) -> None:
    if include and not who.may("admin"):
        raise Forbidden("This key may not see payloads. Ask an owner of the team for a key with the scope admin.")


async def _payloads(conn: Conn, who: Principal, jobs: Sequence[KnownJob], include: Include | None) -> dict[UUID, Payload]:
    return await repository.payloads(conn, who.team_id, [job.id for job in jobs]) if include else {}


def _job_row_out(job: KnownJob, payload: Payload | None) -> JobRowOut:
    return JobRowOut(
        id=job.id,
        project_id=job.project_id,
        team_id=job.team_id,
        source_type=job.source_type,
        source_id=job.source_id,
        status=job.status,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        created_at_epoch=epoch_ms(job.created_at),
        completed_at_epoch=epoch_ms_or_none(job.completed_at),
        failed_at_epoch=epoch_ms_or_none(job.failed_at),
        last_error=_error_out(job.last_error),
        payload=_payload_out(payload),
    )


def _known_job_out(job: KnownJob, payload: Payload | None = None) -> KnownJobOut:
    return KnownJobOut(
        **msgspec.structs.asdict(_job_row_out(job, payload)),
        agent_event_id=job.agent_event_id,
        server_session_id=job.server_session_id,
        job_type=job.job_type,
        bullmq_job_id=job.id,
        source_run=job.source_run,
        outcome=job.outcome,
        outcome_reason=job.outcome_reason,
        next_attempt_at_epoch=epoch_ms_or_none(job.next_attempt_at),
        cancel_requested_at_epoch=epoch_ms_or_none(job.cancel_requested_at),
        cancelled_at_epoch=epoch_ms_or_none(job.cancelled_at),
        updated_at_epoch=epoch_ms(job.updated_at),
    )


def _run_out(run: Run, *, with_answer: bool) -> RunOut:
    return RunOut(
        id=run.id,
        provider=run.provider,
        model=run.model,
        status=run.status,
        error_class=run.error_class,
        error_message=run.error_message,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        cost_usd=None if run.cost_usd is None else usd(run.cost_usd),
        latency_ms=run.latency_ms,
        created_at_epoch=epoch_ms(run.created_at),
        answer=run.answer if with_answer else UNSET,
    )


def _payload_out(payload: Payload | None) -> PayloadOut | UnsetType:
    if payload is None:
        return UNSET
    event = None
    if payload.event_id is not None:
        event = EventPayloadOut(id=payload.event_id, type=payload.event_type or "", payload=payload.event_payload)
    return PayloadOut(job=payload.payload, event=event)


def _error_out(error: dict[str, object] | None) -> dict[str, object] | None:
    """Without claims, which are counted over all teams, and workers, which are the operator's."""
    return None if error is None else {name: value for name, value in error.items() if name not in {"claim", "worker"}}


def _step_out(step: Step) -> StepOut:
    return StepOut(
        id=str(step.place),
        event_type=step.event_type,
        status_after=step.status_after,
        attempt=step.attempt,
        details=step.details,
        created_at_epoch=epoch_ms(step.created_at),
    )


def _projects(request: Request) -> Projects:
    return cast("Projects", request.app.state.projects)


def _bell(request: Request) -> Bell:
    return cast("Bell", request.app.state.bell)


routes = [
    Operation("GET", "/v1/jobs", get_jobs, scope="jobs:read", query=ListQuery, answers={200: ListOut}),
    Operation("GET", "/v1/jobs/{id}", get_job, scope="jobs:read", query=OneQuery, answers={200: DetailOut}),
    Operation("GET", "/v1/jobs/{id}/events", get_job_events, scope="jobs:read", query=EventsQuery, answers={200: LifeOut}),
    Operation("POST", "/v1/jobs/{id}/retry", post_job_retry, scope="jobs:write", answers={200: RetriedOut}),
    Operation("POST", "/v1/jobs/{id}/cancel", post_job_cancel, scope="jobs:write", answers={200: CancelledOut}),
    Operation("GET", "/v1/teams/{team}/jobs", get_team_jobs, scope="jobs:read", query=ListQuery, answers={200: ListOut}),
    Operation(
        "GET", "/v1/projects/{project:path}/jobs", get_project_jobs, scope="jobs:read", query=ListQuery, answers={200: ListOut}
    ),
    Operation("POST", "/v1/reindex", post_reindex, scope="jobs:write", body=ReindexIn, answers={202: OneOut}),
]
