"""Generation jobs on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.base.columns import Columns
from cmserver.base.money import usd
from cmserver.base.structs import reshape
from cmserver.generation.model import Job, Status
from cmserver.generation.operate.model import JobEvent, Lane, LaneState, Payload, Run
from cmserver.generation.operate.words import explain_details
from cmserver.sessions.model import SessionLabel


class GenerationJobOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The job in the answer to an event or a session's end. `transport` is always `enqueued`."""

    id: UUID
    status: str
    bullmq_job_id: UUID
    source_type: str
    source_id: UUID
    transport: Literal["enqueued"] = "enqueued"
    attempts: int
    max_attempts: int
    created_at_epoch: int
    updated_at_epoch: int


def job_out(job: Job) -> GenerationJobOut:
    return reshape(job, GenerationJobOut, bullmq_job_id=job.id)


class EventPayloadOut(msgspec.Struct, frozen=True, kw_only=True):
    """The event of a job. `type` is what happened: `tool_use`, `user_prompt` and others."""

    id: UUID
    type: str
    payload: object


class PayloadOut(msgspec.Struct, frozen=True, kw_only=True):
    """A job's input. `job` is its own payload; `event` is the event that it is about, or null without one."""

    job: dict[str, object]
    event: EventPayloadOut | None


class JobRowOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A job in a list. `waitsFor` is why a queued job waits and until when, in words, or null."""

    id: UUID
    project_id: UUID
    team_id: UUID
    source_type: str
    source_id: UUID
    job_type: str
    status: Status
    attempts: int
    max_attempts: int
    created_at_epoch: int
    completed_at_epoch: int | None
    failed_at_epoch: int | None
    last_error: dict[str, object] | None
    waits_for: str | None = None
    payload: PayloadOut | UnsetType = UNSET


class JobOut(JobRowOut, rename="camel", frozen=True, kw_only=True):
    """A job with all its details."""

    agent_event_id: UUID | None
    server_session_id: UUID | None
    bullmq_job_id: UUID
    source_run: int
    outcome: str | None
    outcome_reason: str | None
    next_attempt_at_epoch: int | None
    cancel_requested_at_epoch: int | None
    cancelled_at_epoch: int | None
    updated_at_epoch: int


class ListedJobOut(JobRowOut, rename="camel", frozen=True, kw_only=True):
    """A job in a list. `project` and `sessionTitle` are null for a key without the scope observations:read.

    `project` is the canonical id of its project; `sessionTitle` is the title of its session, or else the beginning of its first
    prompt.
    """

    server_session_id: UUID | None = None
    project: str | None = None
    session_title: str | None = None


class JobsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first. `total` is how many there are, counted up to 10,000."""

    jobs: list[ListedJobOut]
    total: int
    total_is_capped: bool
    limit: int
    offset: int
    next_cursor: str | None
    request_id: str | None


class SingleJobOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One job."""

    generation_job: JobOut


class RunOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A provider call; its tokens, with those of the cache, are the sum for all jobs that it served.

    `status` is asked (the tokens are an estimate), answered, applied, unusable, failed, or lost with its worker. `latencyMs` is how
    long it took, in milliseconds, or 0 before its answer. `answer` is the provider's text, with `include=payload`, until it is
    applied or if it is unusable, else null.
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
    latency_ms: int
    created_at_epoch: int
    answer: str | UnsetType | None = UNSET


class JobDetailOut(SingleJobOut, rename="camel", frozen=True, kw_only=True):
    """One job and its newest provider call: `run` is the newest call, or null before the first."""

    run: RunOut | None


class RetriedJobOut(SingleJobOut, rename="camel", frozen=True, kw_only=True):
    """The queued job; `retriedCount` is 1, or 0 if it was queued before."""

    retried_count: int
    already_queued: bool
    request_id: str | None


class CancelledJobOut(SingleJobOut, rename="camel", frozen=True, kw_only=True):
    """The job; a running one shows `processing` until its worker has stopped it."""

    already_cancelled: bool
    request_id: str | None


class JobEventOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry of a job's history, and the status it led to. `eventType` is what happened; `details` are ids, numbers and reasons
    of it.
    """

    id: str
    event_type: str
    status_after: Status
    attempt: int
    details: dict[str, object]
    created_at_epoch: int


class JobEventsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Oldest first."""

    events: list[JobEventOut]
    next_cursor: str | None


class JobCallsOut(msgspec.Struct, frozen=True, kw_only=True):
    """The provider calls of a job, newest first, up to 100."""

    calls: list[RunOut]


class SelectedJobsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What became of a selection of jobs. With `dryRun` nothing was changed.

    `matched` is how many fit, counted up to 1,001; `changed` is how many of them were changed, up to 1,000; `hasMore` is whether
    there were more.
    """

    matched: int
    changed: int
    has_more: bool
    dry_run: bool
    request_id: str | None


class LaneRowOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A lane: the jobs of one session, in their order. `state` is working (a worker has it), due, waiting for its time, held, or
    idle.

    `project` and `sessionTitle` are null for a key without the scope observations:read.
    """

    id: UUID
    project_id: UUID
    project: str | None
    session_id: UUID | None
    session_title: str | None
    state: LaneState
    queued: int
    due_at_epoch: int | None
    held_until_epoch: int | None
    held_reason: str | None
    held_for: str | None
    locked_at_epoch: int | None


class LanesOut(msgspec.Struct, frozen=True, kw_only=True):
    """Those that a worker has first, then by when they are due."""

    lanes: list[LaneRowOut]


class WorkerRowOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A worker of the server. `lanes` is how many lanes it has in hand; `label` is its machine and process."""

    worker_id: int
    label: str
    lease_seconds: float
    alive: bool
    lanes: int
    started_at_epoch: int
    last_heartbeat_epoch: int | None
    oldest_batch_at_epoch: int | None


class WorkersOut(msgspec.Struct, frozen=True, kw_only=True):
    """The newest first."""

    workers: list[WorkerRowOut]


def lane_out(lane: Lane, project: str | None, session: SessionLabel | None) -> LaneRowOut:
    return reshape(
        lane, LaneRowOut, id=lane.lane, project=project, session_title=session and (session.title or session.first_prompt)
    )


def listed_job_out(
    job: Job, payload: Payload | None, project: str | None, session: SessionLabel | None, waits_for: str | None
) -> ListedJobOut:
    return reshape(
        job,
        ListedJobOut,
        waits_for=waits_for,
        last_error=_error_out(job.last_error),
        payload=_payload_out(payload),
        project=project,
        session_title=session and (session.title or session.first_prompt),
    )


def job_out_with_details(job: Job, payload: Payload | None = None, waits_for: str | None = None) -> JobOut:
    error = _error_out(job.last_error)
    return reshape(job, JobOut, bullmq_job_id=job.id, last_error=error, payload=_payload_out(payload), waits_for=waits_for)


def run_out(run: Run, *, with_answer: bool) -> RunOut:
    cost_usd = None if run.cost_usd is None else usd(run.cost_usd)
    return reshape(run, RunOut, cost_usd=cost_usd, answer=run.answer if with_answer else UNSET)


def _payload_out(payload: Payload | None) -> PayloadOut | UnsetType:
    if payload is None:
        return UNSET
    event = None
    if payload.event_id is not None:
        event = EventPayloadOut(id=payload.event_id, type=payload.event_type or "", payload=payload.event_payload)
    return PayloadOut(job=payload.payload, event=event)


def _error_out(error: dict[str, object] | None) -> dict[str, object] | None:
    """Without claims and workers, which only the operator sees."""
    return None if error is None else {name: value for name, value in error.items() if name not in {"claim", "worker"}}


def job_event_out(event: JobEvent) -> JobEventOut:
    return reshape(event, JobEventOut, id=str(event.number))


def render_history(events: Sequence[JobEventOut]) -> str:
    """A table of what became of a job."""
    columns = Columns(
        JobEventOut,
        "when=created, what=event_type, details",
        details=lambda event: explain_details(event.details),
    )
    return columns.table(events, empty="The job has no history.", shrink=("details",))
