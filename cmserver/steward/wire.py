"""The steward on the wire."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key
from cmserver.generation.wire import JobEventOut, JobOut, job_event_out, job_out_with_details
from cmserver.steward import model as steward_model
from cmserver.steward.operate import RunDetail, StewardStatus


class ModeIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What is not sent stays. With a `project`, `executors` narrows what is done there, and nothing else may be sent."""

    mode: steward_model.Mode | None = None
    paused: bool | None = None
    executors: Annotated[list[steward_model.JobType], Meta(max_length=4)] | None = None
    project: Key | None = None


class RunNowIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Of all projects and by all executors that may run, unless some are named."""

    project: Key | None = None
    executors: Annotated[list[steward_model.JobType], Meta(min_length=1, max_length=4)] | None = None


class RunsQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Which runs, newest first: `status` is which to list."""

    project: Key | None = None
    status: steward_model.RunStatus | None = None
    job_type: steward_model.JobType | None = None
    limit: Limit = 50
    cursor: str | None = None


class PolicyHistoryQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes of thresholds, newest first: `key` is the name of one; without it, all are listed."""

    key: Key | None = None
    limit: Limit = 50


class ProjectExecutorsOut(msgspec.Struct, frozen=True, kw_only=True):
    """The executors that may run in a project."""

    project: str
    executors: list[str]


class StewardQueueOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Open jobs, and those of the last 24 hours that are dead letters. The limits are for all teams, and for one project."""

    queued: int
    running: int
    dead_letter: int
    oldest_queued_seconds: float | None
    max_queued: int = steward_model.MAX_QUEUED
    max_queued_of_project: int = steward_model.MAX_QUEUED_OF_PROJECT


class StewardMetricsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Of the last 24 hours, but for `runsLastHour`. `runs` is how many runs there were; `successRate` is the share of them that
    succeeded, from 0 to 1, or null without runs.
    """

    runs_last_hour: int
    runs: int
    success_rate: float | None
    average_tokens: float
    average_latency_ms: float
    p95_latency_ms: int | None
    top_failures: list[steward_model.RunFailure]


class BreakerOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """While it is open no model is asked."""

    is_open: bool
    consecutive_failures: int
    last_failure: str | None
    open_until_epoch: int | None


class StewardStatusOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the steward may do and has to do, and how it does."""

    mode: steward_model.Mode
    paused: bool
    executors: list[str]
    changed_by: str | None
    changed_at_epoch: int | None
    projects: list[ProjectExecutorsOut]
    queue: StewardQueueOut
    metrics: StewardMetricsOut
    breaker: BreakerOut
    policies: dict[str, float]


class QueuedJobsOut(msgspec.Struct, frozen=True, kw_only=True):
    """`queued` are the ids of the jobs that were made."""

    queued: list[UUID]


class StewardRunOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One attempt at a job that came to an end. `provider` is whose model was asked, or null where none was.

    `status` is how it ended; `triggerReason` is why there was a job.
    A tuning of the team's thresholds has no job: `jobId` is the run's own id, and `triggerReason` is null.
    """

    id: UUID
    job_id: UUID
    job_type: str
    trigger_reason: str | None
    job_status: steward_model.JobStatus
    project: str | None
    attempt: int
    provider: str | None
    model: str | None
    input: dict[str, object]
    output: dict[str, object] | None
    input_hash: str | None
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    latency_ms: int | None
    status: steward_model.RunStatus
    error_class: str | None
    error_message: str | None
    created_at_epoch: int
    completed_at_epoch: int | None
    undone_at_epoch: int | None
    undone_by: str | None


class StewardRunsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    runs: list[StewardRunOut]
    next_cursor: str | None


class ActsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What happened by itself, newest first: in a project, or in all that the key sees."""

    project: Key | None = None
    limit: Limit = 50


class ActOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Something that happened by itself.

    `atEpoch` is when, in milliseconds since 1970.
    `kind` is what: `merged`, `repeated` (written down again, so it holds), `promoted`, `done` or `dropped` (an open end), or
    `steward`. `number` is of the observation that it was done to, and `title` its title, or which job of the steward it was.
    `byNumbers` are the sources of a merge, what closed an open end, or what a run of the steward wrote. `why` is the evidence in
    words. `similarity` is of merges, from 0 to 1. `canUndo` is whether nothing came after it.
    """

    at_epoch: int
    project_id: UUID | None
    kind: steward_model.ActKind
    number: int | None
    title: str
    why: str
    by_numbers: list[int]
    measured_by: str | None
    similarity: float | None
    run_id: UUID | None
    can_undo: bool


class ActsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Of the last seven days, newest first."""

    acts: list[ActOut]


class StewardRunDetailOut(msgspec.Struct, frozen=True, kw_only=True):
    """A run, its job (null for a tuning of thresholds), and the job's history: `events` are the steps, oldest first."""

    run: StewardRunOut
    job: JobOut | None
    events: list[JobEventOut]


class UndoneRunOut(msgspec.Struct, frozen=True, kw_only=True):
    """The run; `undone` are the effects that were taken back, the last first."""

    run: StewardRunOut
    undone: list[steward_model.UndoneEffect]


class PolicyOut(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold: what holds, what is usual, and between which values the steward may move it."""

    key: str
    value: float
    usual: float
    least: float
    most: float
    meaning: str


class PolicyChangeOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A change of a threshold, with what spoke for it."""

    id: UUID
    policy_key: str
    prior_value: float
    new_value: float
    reason: str
    sample_size: int
    evidence: dict[str, object]
    changed_by: str
    rollback_of_id: UUID | None
    run_id: UUID | None
    created_at_epoch: int


class PoliciesOut(msgspec.Struct, frozen=True, kw_only=True):
    """All thresholds; `history` are their changes, newest first."""

    policies: list[PolicyOut]
    history: list[PolicyChangeOut]


class OnePolicyChangeOut(msgspec.Struct, frozen=True, kw_only=True):
    """The change that takes another one back."""

    change: PolicyChangeOut


def status_out(status: StewardStatus) -> StewardStatusOut:
    figures = status.figures
    return reshape(
        status.team,
        StewardStatusOut,
        paused=status.team.is_paused,
        projects=[reshape(row, ProjectExecutorsOut) for row in status.projects],
        queue=reshape(status.queue, StewardQueueOut),
        metrics=reshape(
            figures,
            StewardMetricsOut,
            success_rate=figures.succeeded / figures.runs if figures.runs else None,
            top_failures=status.failures,
        ),
        breaker=reshape(status.breaker, BreakerOut),
        policies=status.policies,
    )


def run_out(run: steward_model.StewardRun) -> StewardRunOut:
    return reshape(run, StewardRunOut, input=run.input_snapshot, output=run.output_snapshot)


def detail_out(detail: RunDetail) -> StewardRunDetailOut:
    return StewardRunDetailOut(
        run=run_out(detail.run),
        job=detail.job and job_out_with_details(detail.job),
        events=[job_event_out(event) for event in detail.events],
    )


def undone_out(run: steward_model.StewardRun, undone: list[steward_model.UndoneEffect]) -> UndoneRunOut:
    return UndoneRunOut(run=run_out(run), undone=undone)


def policies_out(values: dict[str, float], history: list[steward_model.PolicyChange]) -> PoliciesOut:
    policies = [reshape(bounds, PolicyOut, key=key, value=values[key]) for key, bounds in steward_model.POLICIES.items()]
    return PoliciesOut(policies=policies, history=[reshape(row, PolicyChangeOut) for row in history])
