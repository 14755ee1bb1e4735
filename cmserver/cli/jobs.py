"""`cmserver jobs`: the queue from which events become observations."""

from __future__ import annotations

import click
import msgspec

from cmserver.base.errors import Forbidden
from cmserver.cli.show import Cell, moment, pairs, plain, table
from cmserver.cli.talk import Talk, limit_option, more, segment, talks

_LONGEST_LIFE = 1000
STATUSES = ("queued", "processing", "completed", "failed", "cancelled")


class Job(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A job as lists show it."""

    id: str
    project_id: str
    source_type: str
    source_id: str
    status: str
    attempts: int
    max_attempts: int
    created_at_epoch: int
    completed_at_epoch: int | None = None
    failed_at_epoch: int | None = None
    last_error: Error | None = None


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job failed."""

    reason: str = ""
    message: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, [self.reason, self.message]))


class OneJob(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with one job."""

    generation_job: FullJob


class FullJob(Job, rename="camel", frozen=True, kw_only=True):
    """A job as it is shown alone."""

    job_type: str | None = None
    server_session_id: str | None = None
    outcome: str | None = None
    outcome_reason: str | None = None
    next_attempt_at_epoch: int | None = None
    cancelled_at_epoch: int | None = None
    updated_at_epoch: int


class Run(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A call of a provider."""

    provider: str
    model: str
    status: str
    error_class: str | None = None
    error_message: str | None = None
    input_tokens: int
    output_tokens: int
    cost_usd: str | None = None
    latency_ms: int
    answer: str | None = None


class JobDetail(OneJob, rename="camel", frozen=True, kw_only=True):
    """An answer with one job and its newest call."""

    run: Run | None = None


class Jobs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with jobs."""

    jobs: list[Job]
    next_cursor: str | None = None


class Step(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A line of a job's life."""

    event_type: str
    details: dict[str, object] = {}
    created_at_epoch: int


class Life(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer with a job's life."""

    events: list[Step]


class Retried(OneJob, rename="camel", frozen=True, kw_only=True):
    """The answer to a retry."""

    already_queued: bool


class Cancelled(OneJob, rename="camel", frozen=True, kw_only=True):
    """The answer to a cancellation."""

    already_cancelled: bool


class Queue(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What GET /v1/info says of the queue."""

    waiting: int
    active: int
    delayed: int
    held: int
    completed: int
    failed: int
    cancelled: int
    recovered: int
    oldest_waiting_seconds: float | None
    warning: str | None


class Info(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What GET /v1/info says; of the queue only to those who may read jobs."""

    workers: int
    queue: Queue | None = None


@click.group()
def jobs() -> None:
    """The queue: one job for each event, and one for each session's summary."""


@jobs.command()
@talks
async def status(talk: Talk) -> None:
    """How many jobs wait, run, or have ended how."""
    talk.tell(await talk.api.get("/v1/info"), Info, _status)


def _status(info: Info) -> str:
    queue = info.queue
    if queue is None:
        raise Forbidden("This key does not have the scope jobs:read. Ask an owner of the team for a key that has it.")
    oldest = None if queue.oldest_waiting_seconds is None else f"waits for {queue.oldest_waiting_seconds:.0f} s"
    return pairs(
        ("workers", info.workers),
        ("waiting", queue.waiting),
        ("active", queue.active),
        ("delayed", queue.delayed),
        ("held", queue.held),
        ("completed", queue.completed),
        ("failed", queue.failed),
        ("cancelled", queue.cancelled),
        ("recovered from lost workers", queue.recovered),
        ("oldest", oldest),
        *((("warning", queue.warning),) if queue.warning else ()),
    )


@jobs.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only those in this state.")
@click.option("--project", help="Only those of this project.")
@limit_option
@talks
async def list_jobs(talk: Talk, status: str | None, project: str | None, limit: int) -> None:
    """The team's jobs, newest first."""
    await _list(talk, status, project, limit)


@jobs.command()
@click.option("--project", help="Only those of this project.")
@limit_option
@talks
async def failed(talk: Talk, project: str | None, limit: int) -> None:
    """The jobs that have failed for good, and why."""
    await _list(talk, "failed", project, limit)


async def _list(talk: Talk, status: str | None, project: str | None, limit: int) -> None:
    answer = await talk.api.pages("/v1/jobs", "jobs", {"status": status, "project": project}, limit=limit)
    talk.tell(answer, Jobs, _table)


def _table(found: Jobs) -> str:
    more(found.next_cursor)
    return table(
        ("id", "status", "of", "tries", "project", "created", "error"),
        [
            (
                job.id,
                job.status,
                job.source_type,
                f"{job.attempts}/{job.max_attempts}",
                job.project_id,
                moment(job.created_at_epoch),
                str(job.last_error or ""),
            )
            for job in found.jobs
        ],
        nothing="There are no such jobs.",
        wide=("error",),
    )


@jobs.command()
@click.argument("job_id")
@click.option("--answer", "with_answer", is_flag=True, help="Also what the provider said, if it is kept; needs the scope admin.")
@talks
async def show(talk: Talk, job_id: str, *, with_answer: bool) -> None:
    """One job, the newest call that was made for it, and its life."""
    answer = await talk.api.get(_path(job_id), {"include": "payload"} if with_answer else None)
    if talk.as_json:
        talk.tell(answer, JobDetail, _lines)
        return
    life = await talk.api.pages(f"{_path(job_id)}/events", "events", limit=_LONGEST_LIFE)
    talk.tell(answer, JobDetail, lambda one: f"{_lines(one)}\n\n{_life(life.read(Life))}{_answer(one) if with_answer else ''}")


def _answer(one: JobDetail) -> str:
    said = one.run.answer if one.run else None
    return "\n\n" + ("No answer is kept." if said is None else "\n".join(plain(line) for line in said.splitlines()))


def _run(run: Run) -> tuple[tuple[str, Cell], ...]:
    cost = "" if run.cost_usd is None else f", ${run.cost_usd}"
    return (
        ("call", f"{run.provider} ({run.model}): {run.status}"),
        ("call took", f"{run.latency_ms / 1000:.1f} s, {run.input_tokens:,} tokens in, {run.output_tokens:,} out{cost}"),
        *((("call failed", str(Error(reason=run.error_class, message=run.error_message or ""))),) if run.error_class else ()),
    )


def _lines(one: JobDetail) -> str:
    job = one.generation_job
    return pairs(
        ("id", job.id),
        ("type", job.job_type),
        ("status", job.status),
        ("tries", f"{job.attempts}/{job.max_attempts}"),
        ("project", job.project_id),
        ("session", job.server_session_id),
        (job.source_type, job.source_id),
        ("created", moment(job.created_at_epoch)),
        ("next try", moment(job.next_attempt_at_epoch)),
        ("completed", moment(job.completed_at_epoch)),
        ("failed", moment(job.failed_at_epoch)),
        ("cancelled", moment(job.cancelled_at_epoch)),
        *((("outcome", ": ".join(filter(None, [job.outcome, job.outcome_reason]))),) if job.outcome else ()),
        ("error", str(job.last_error or "")),
        *(_run(one.run) if one.run else ()),
    )


def _life(life: Life) -> str:
    return table(
        ("when", "what", "details"),
        [
            (moment(step.created_at_epoch), step.event_type, msgspec.json.encode(step.details).decode() if step.details else None)
            for step in life.events
        ],
        nothing="Nothing is known of its life.",
        wide=("details",),
    )


@jobs.command()
@click.argument("job_id")
@talks
async def retry(talk: Talk, job_id: str) -> None:
    """Put a failed or cancelled job back into the queue."""
    answer = await talk.api.post(f"{_path(job_id)}/retry")
    talk.tell(
        answer,
        Retried,
        lambda it: f"The job {it.generation_job.id} {'was queued already' if it.already_queued else 'is queued again'}.",
    )


@jobs.command()
@click.argument("job_id")
@talks
async def cancel(talk: Talk, job_id: str) -> None:
    """Take a job out of the queue; one that runs is stopped and writes nothing."""
    answer = await talk.api.post(f"{_path(job_id)}/cancel")
    talk.tell(answer, Cancelled, _cancelled)


def _cancelled(it: Cancelled) -> str:
    job = it.generation_job
    if job.status == "processing":
        return f"The job {job.id} is being stopped; it writes nothing."
    return f"The job {job.id} {'was cancelled already' if it.already_cancelled else 'is cancelled'}."


def _path(job_id: str) -> str:
    return f"/v1/jobs/{segment(job_id)}"
