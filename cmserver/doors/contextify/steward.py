"""The steward behind Contextify's routes: the same verbs as `/v1/steward`, in its shapes, but with names in snake_case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.http.operation import get, post, put
from cmserver.base.http.wire import answer, caller, db, dependency, path_id, query, read
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import Key
from cmserver.doors.contextify.frame import admit, contextify
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import Job
from cmserver.generation.operate import manage as manage_jobs
from cmserver.memories.wire import StewardEventsQuery, StewardPageQuery, StewardPoliciesQuery
from cmserver.models.providers import registry
from cmserver.steward import operate
from cmserver.steward import repository as steward
from cmserver.steward.model import MAX_QUEUED, MAX_QUEUED_OF_PROJECT, Mode, RunFailure, StewardJob
from cmserver.steward.operate import StewardStatus
from cmserver.steward.policies import repository as policies
from cmserver.steward.policies import thresholds
from cmserver.steward.runs import repository as runs

NO_JOB = "There is no such job of the steward."
_TICK_NANOSECONDS = 60_000_000_000
_STATUSES = {"processing": "running", "completed": "succeeded"}
"""Its words for what a job of the outbox is."""


class ContextifyStewardQueueOut(msgspec.Struct, frozen=True, kw_only=True):
    """What waits. `/v1/jobs?source_type=steward` lists it."""

    queued_total: int
    queued_by_project_top: list[str] = []
    dead_letter_total: int
    average_processing_latency_ms: float


class ContextifyStewardBreakerOut(msgspec.Struct, frozen=True, kw_only=True):
    """Whether models are asked."""

    open: bool
    consecutive_failures: int
    reason: str | None
    last_failure: str | None


class ContextifyStewardLimitsOut(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs may wait."""

    max_queued_total: int = MAX_QUEUED
    max_queued_per_project: int = MAX_QUEUED_OF_PROJECT


class ContextifyStewardStatusOut(msgspec.Struct, frozen=True, kw_only=True):
    """There is no leader: every worker may run each job, and a claim decides which. `model` is the provider that is asked first."""

    enabled: bool
    dry_run: bool
    paused: bool
    is_leader: bool = False
    worker_id: str = ""
    tick_interval: int = _TICK_NANOSECONDS
    model: str
    health: ContextifyStewardQueueOut
    startup_recovered_stale_jobs: int = 0
    circuit_breaker: ContextifyStewardBreakerOut
    backpressure: ContextifyStewardLimitsOut = ContextifyStewardLimitsOut()


class ContextifyStewardRunOut(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a job."""

    id: UUID
    job_id: UUID
    job_type: str
    project_id: str | None
    job_status: str
    provider: str | None
    model: str | None
    input_snapshot: dict[str, object]
    output_snapshot: dict[str, object] | None
    input_hash: str | None
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    latency_ms: int | None
    status: str
    error_class: str | None
    error_message: str | None
    created_at: str
    completed_at: str | None


class ContextifyStewardRunsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    runs: list[ContextifyStewardRunOut]
    limit: int
    offset: int


class ContextifyStewardEventOut(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the life of a job."""

    id: int
    job_id: UUID
    run_id: UUID | None
    event_type: str
    data: dict[str, object]
    schema_version: int
    created_at: str


class ContextifyStewardEventsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest first."""

    events: list[ContextifyStewardEventOut]
    limit: int
    offset: int


class ContextifyPolicyChangeOut(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a threshold."""

    id: UUID
    policy_key: str
    prior_value: float
    new_value: float
    reason: str
    sample_size: int
    evidence: dict[str, object]
    changed_by: str
    rollback_of_id: UUID | None
    created_at: str


class ContextifyStewardPoliciesOut(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    items: list[ContextifyPolicyChangeOut]
    limit: int
    offset: int


class ContextifyStewardMetricsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Of the last 24 hours, but for `runs_last_hour`."""

    runs_last_hour: int
    success_rate: float
    average_tokens_per_run: float
    p95_latency_ms: float
    top_failure_reasons: list[RunFailure]


class ContextifyModeIn(msgspec.Struct, kw_only=True):
    """What is not sent stays, where the original takes it for false. `dry_run` is whether it decides without writing."""

    paused: bool | None = None
    dry_run: bool | None = None


class ContextifyRollbackIn(msgspec.Struct, kw_only=True):
    """Which policy."""

    policy_key: Key


class ContextifyTriggerOut(msgspec.Struct, frozen=True, kw_only=True):
    """The work is queued: `status` is always `triggered`."""

    status: str = "triggered"


class ContextifyJobStatusOut(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is now."""

    status: str
    id: UUID


async def get_status(request: Request) -> Response:
    """What the steward may do, and what waits."""
    principal = (await admit(request)).principal
    async with db(request).tenant(principal.team_id) as conn:
        status = await operate.read_status(conn, principal)
    return answer(_status_out(status, dependency(request, Settings)))


def _status_out(status: StewardStatus, settings: Settings) -> ContextifyStewardStatusOut:
    breaker = status.breaker
    return ContextifyStewardStatusOut(
        enabled=status.team.mode != "off",
        dry_run=status.team.mode != "write",
        paused=status.team.is_paused,
        model=registry.provider_settings(settings)[0].name,
        health=ContextifyStewardQueueOut(
            queued_total=status.queue.queued,
            dead_letter_total=status.queue.dead_letter,
            average_processing_latency_ms=status.figures.average_latency_ms,
        ),
        circuit_breaker=ContextifyStewardBreakerOut(
            open=breaker.is_open,
            consecutive_failures=breaker.consecutive_failures,
            reason=breaker.last_failure if breaker.is_open else None,
            last_failure=breaker.last_failure,
        ),
    )


async def get_runs(request: Request) -> Response:
    """Runs of the steward, newest first."""
    principal = (await admit(request)).principal
    page = query(request, StewardPageQuery)
    async with db(request).tenant(principal.team_id) as conn:
        rows = await runs.newest(conn, principal.team_id, project_id=principal.project_id, limit=page.limit, offset=page.offset)
    out = [
        reshape(
            run,
            ContextifyStewardRunOut,
            project_id=run.project,
            created_at=run.created_at.isoformat(),
            completed_at=run.completed_at and run.completed_at.isoformat(),
        )
        for run in rows
    ]
    return answer(ContextifyStewardRunsOut(runs=out, limit=page.limit, offset=page.offset))


async def get_job_events(request: Request) -> Response:
    """Events of a job of the steward, oldest first; none of a job that is not there, as in the original."""
    principal = (await admit(request)).principal
    job_id = path_id(request, NO_JOB, "jobId")
    page = query(request, StewardEventsQuery)
    async with db(request).tenant(principal.team_id) as conn:
        job = await _find_job(conn, principal, job_id)
        found = await runs.events(conn, principal.team_id, job_id, limit=page.limit, offset=page.offset) if job else []
    events = [reshape(event, ContextifyStewardEventOut, created_at=event.created_at.isoformat()) for event in found]
    return answer(ContextifyStewardEventsOut(events=events, limit=page.limit, offset=page.offset))


async def get_metrics(request: Request) -> Response:
    """Figures of the steward."""
    principal = (await admit(request)).principal
    async with db(request).tenant(principal.team_id) as conn:
        figures = await runs.figures(conn, principal.team_id, principal.project_id)
        failures = await runs.failures(conn, principal.team_id, principal.project_id)
    return answer(
        ContextifyStewardMetricsOut(
            runs_last_hour=figures.runs_last_hour,
            success_rate=figures.succeeded / figures.runs if figures.runs else 0.0,
            average_tokens_per_run=figures.average_tokens,
            p95_latency_ms=float(figures.p95_latency_ms or 0),
            top_failure_reasons=failures,
        )
    )


async def get_policies(request: Request) -> Response:
    """Changes of the steward's policies, newest first."""
    principal = (await admit(request)).principal
    page = query(request, StewardPoliciesQuery)
    async with db(request).tenant(principal.team_id) as conn:
        changes = await policies.history(conn, principal.team_id, policy_key=page.policy_key, limit=page.limit, offset=page.offset)
    items = [reshape(change, ContextifyPolicyChangeOut, created_at=change.created_at.isoformat()) for change in changes]
    return answer(ContextifyStewardPoliciesOut(items=items, limit=page.limit, offset=page.offset))


async def post_run(request: Request) -> Response:
    """Queue all that there is to do; 409 while the steward is off or paused."""
    principal = await caller(request, Principal)
    await operate.run_now(db(request), dependency(request, Settings), principal, project_id=None, job_types=None)
    return answer(ContextifyTriggerOut())


async def put_mode(request: Request) -> Response:
    """Pause the steward, or switch it between a dry run and writing."""
    principal = await caller(request, Principal)
    change = await read(request, ContextifyModeIn)
    mode: Mode | None = None if change.dry_run is None else "dry_run" if change.dry_run else "write"
    async with db(request).tenant(principal.team_id) as conn:
        await operate.set_mode(conn, principal, mode=mode, is_paused=change.paused)
        status = await operate.read_status(conn, principal)
    return answer(_status_out(status, dependency(request, Settings)))


async def post_rollback(request: Request) -> Response:
    """Take back the last change of a policy that was not taken back yet."""
    principal = await caller(request, Principal)
    operate.require_team_key(principal)
    key = (await read(request, ContextifyRollbackIn)).policy_key
    change = await db(request).in_tenant(principal.team_id, lambda conn: thresholds.roll_back(conn, principal, key))
    return answer(reshape(change, ContextifyPolicyChangeOut, created_at=change.created_at.isoformat()))


async def post_retry(request: Request) -> Response:
    """Queue a job again that failed or was cancelled."""
    return await _change_job(request, manage_jobs.retry_job)


async def post_cancel(request: Request) -> Response:
    """End a queued job; a running one stops and writes nothing."""
    return await _change_job(request, manage_jobs.cancel_job)


async def _change_job(
    request: Request, change: Callable[[Db, JobNotifier, Principal, str], Awaitable[tuple[Job, bool]]]
) -> Response:
    """Do it to a job of the steward; Conflict where that is done already, but for a running one that will stop."""
    principal = await caller(request, Principal)
    job_id = path_id(request, NO_JOB, "jobId")
    async with db(request).tenant(principal.team_id) as conn:
        if await _find_job(conn, principal, job_id) is None:
            raise NotFound(NO_JOB)
    job, is_new = await change(db(request), dependency(request, JobNotifier), principal, str(job_id))
    if not is_new and job.status != "processing":
        raise Conflict(f"There is nothing to do: the job is {_STATUSES.get(job.status, job.status)}.")
    return answer(ContextifyJobStatusOut(status=_STATUSES.get(job.status, job.status), id=job.id))


async def _find_job(conn: Conn, principal: Principal, job_id: UUID) -> StewardJob | None:
    job = await steward.job(conn, principal.team_id, job_id)
    return job if job is not None and principal.sees(job.project_id) else None


routes = [
    get("/api/v1/steward/status", contextify(get_status), "observations:read", ContextifyStewardStatusOut),
    get("/api/v1/steward/runs", contextify(get_runs), "observations:read", ContextifyStewardRunsOut, query=StewardPageQuery),
    get(
        "/api/v1/steward/jobs/{jobId}/events",
        contextify(get_job_events),
        "observations:read",
        ContextifyStewardEventsOut,
        query=StewardEventsQuery,
    ),
    get("/api/v1/steward/metrics", contextify(get_metrics), "observations:read", ContextifyStewardMetricsOut),
    get(
        "/api/v1/steward/policies/history",
        contextify(get_policies),
        "observations:read",
        ContextifyStewardPoliciesOut,
        query=StewardPoliciesQuery,
    ),
    post("/api/v1/steward/run-once", contextify(post_run), "admin", ContextifyTriggerOut),
    put("/api/v1/steward/mode", contextify(put_mode), "admin", ContextifyStewardStatusOut, body=ContextifyModeIn),
    post("/api/v1/steward/jobs/{jobId}/retry", contextify(post_retry), "admin", ContextifyJobStatusOut),
    post("/api/v1/steward/jobs/{jobId}/cancel", contextify(post_cancel), "admin", ContextifyJobStatusOut),
    post(
        "/api/v1/steward/policies/rollback",
        contextify(post_rollback),
        "admin",
        ContextifyPolicyChangeOut,
        body=ContextifyRollbackIn,
    ),
]
