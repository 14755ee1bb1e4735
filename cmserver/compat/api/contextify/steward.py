"""The steward of Contextify, which is not here: it is off, has done nothing, and takes no orders."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, query
from cmserver.base.ids import named_id
from cmserver.compat.api.contextify.frame import admit, contextify
from cmserver.memories.wire import StewardEventsQuery, StewardPageQuery

_NOT_THERE = "This server has no steward yet: nothing runs by itself, and nothing can be switched on."
_NO_JOB = "Job not found: this server has no steward yet."


class StewardQueueOut(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing waits."""

    queued_total: int = 0
    queued_by_project_top: list[str] = []
    dead_letter_total: int = 0
    average_processing_latency_ms: float = 0.0


class StewardBreakerOut(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing has failed."""

    open: bool = False
    consecutive_failures: int = 0


class StewardLimitsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing may wait."""

    max_queued_total: int = 0
    max_queued_per_project: int = 0


class StewardStatusOut(msgspec.Struct, frozen=True, kw_only=True):
    """It is off."""

    enabled: bool = False
    dry_run: bool = True
    paused: bool = False
    is_leader: bool = False
    worker_id: str = ""
    tick_interval: int = 0
    model: str = ""
    health: StewardQueueOut = StewardQueueOut()
    startup_recovered_stale_jobs: int = 0
    circuit_breaker: StewardBreakerOut = StewardBreakerOut()
    backpressure: StewardLimitsOut = StewardLimitsOut()


class StewardRunsOut(msgspec.Struct, frozen=True, kw_only=True):
    """There are none."""

    runs: list[str] = []
    limit: int
    offset: int


class StewardEventsOut(msgspec.Struct, frozen=True, kw_only=True):
    """There are none."""

    events: list[str] = []
    limit: int
    offset: int


class StewardPoliciesOut(msgspec.Struct, frozen=True, kw_only=True):
    """There are none."""

    items: list[str] = []
    limit: int
    offset: int


class StewardMetricsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing has run."""

    runs_last_hour: int = 0
    success_rate: float = 0.0
    average_tokens_per_run: float = 0.0
    p95_latency_ms: float = 0.0
    top_failure_reasons: list[str] = []


async def get_status(request: Request) -> Response:
    """The state of the steward: off."""
    await admit(request)
    return answer(StewardStatusOut())


async def get_runs(request: Request) -> Response:
    """Runs of the steward: none."""
    await admit(request)
    page = query(request, StewardPageQuery)
    return answer(StewardRunsOut(limit=page.limit, offset=page.offset))


async def get_job_events(request: Request) -> Response:
    """Events of a job of the steward: none."""
    await admit(request)
    if named_id(request.path_params["jobId"]) is None:
        raise NotFound(_NO_JOB)
    page = query(request, StewardEventsQuery)
    return answer(StewardEventsOut(limit=page.limit, offset=page.offset))


async def get_metrics(request: Request) -> Response:
    """Figures of the steward: zero."""
    await admit(request)
    return answer(StewardMetricsOut())


async def get_policies(request: Request) -> Response:
    """Changes of the steward's policies: none."""
    await admit(request)
    page = query(request, StewardPageQuery)
    return answer(StewardPoliciesOut(limit=page.limit, offset=page.offset))


async def refuse_run(request: Request) -> Response:
    """Refused with 409: there is no steward to run."""
    await caller(request, Principal)
    raise Conflict(_NOT_THERE)


async def refuse_mode(request: Request) -> Response:
    """Refused with 409: there is no steward to switch."""
    await caller(request, Principal)
    raise Conflict(_NOT_THERE)


async def refuse_rollback(request: Request) -> Response:
    """Refused with 409: there is no policy to take back."""
    await caller(request, Principal)
    raise Conflict(_NOT_THERE)


async def refuse_retry(request: Request) -> Response:
    """Refused with 404: there is no job to repeat."""
    await caller(request, Principal)
    raise NotFound(_NO_JOB)


async def refuse_cancel(request: Request) -> Response:
    """Refused with 404: there is no job to cancel."""
    await caller(request, Principal)
    raise NotFound(_NO_JOB)


routes = [
    Operation("GET", "/api/v1/steward/status", contextify(get_status), scope="observations:read", answers={200: StewardStatusOut}),
    Operation(
        "GET",
        "/api/v1/steward/runs",
        contextify(get_runs),
        scope="observations:read",
        query=StewardPageQuery,
        answers={200: StewardRunsOut},
    ),
    Operation(
        "GET",
        "/api/v1/steward/jobs/{jobId}/events",
        contextify(get_job_events),
        scope="observations:read",
        query=StewardEventsQuery,
        answers={200: StewardEventsOut},
    ),
    Operation(
        "GET", "/api/v1/steward/metrics", contextify(get_metrics), scope="observations:read", answers={200: StewardMetricsOut}
    ),
    Operation(
        "GET",
        "/api/v1/steward/policies/history",
        contextify(get_policies),
        scope="observations:read",
        query=StewardPageQuery,
        answers={200: StewardPoliciesOut},
    ),
    Operation("POST", "/api/v1/steward/run-once", contextify(refuse_run), scope="admin", answers={}),
    Operation("PUT", "/api/v1/steward/mode", contextify(refuse_mode), scope="admin", answers={}),
    Operation("POST", "/api/v1/steward/jobs/{jobId}/retry", contextify(refuse_retry), scope="admin", answers={}),
    Operation("POST", "/api/v1/steward/jobs/{jobId}/cancel", contextify(refuse_cancel), scope="admin", answers={}),
    Operation("POST", "/api/v1/steward/policies/rollback", contextify(refuse_rollback), scope="admin", answers={}),
]
