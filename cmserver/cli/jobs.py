"""`cmserver jobs`: the queue from which events become observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import click
import msgspec
from msgspec import UNSET

from cmserver.base.errors import Forbidden
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import ApiClient, api_command, limit_option, path_segment
from cmserver.cli.output import Cell, format_time, render_fields, render_table
from cmserver.generation.model import Status
from cmserver.generation.wire import CancelledJobOut, JobDetailOut, JobEventsOut, JobsOut, RetriedJobOut, RunOut
from cmserver.ops.wire import InfoOut

_MAX_STEPS = 1000


@click.group()
def jobs() -> None:
    """The queue: one job for each event, and one for each session's summary."""


@jobs.command()
@api_command
async def status(client: ApiClient) -> None:
    """Count the jobs that wait, run, or have ended."""
    client.show(await client.get("/v1/info"), InfoOut, _queue_lines)


def _queue_lines(info: InfoOut) -> str:
    queue = info.queue
    if queue is UNSET:
        raise Forbidden("This key does not have the scope jobs:read. Ask an owner of the team for a key that has it.")
    oldest = None if queue.oldest_waiting_seconds is None else f"waiting for {queue.oldest_waiting_seconds:.0f} s"
    return render_fields(
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
@click.option("--status", type=click.Choice(get_args(Status)), help="Only jobs with this status.")
@click.option("--project", help="Only jobs of this project.")
@click.option("--session", metavar="ID", help="Only jobs of this session.")
@limit_option
@api_command
async def list_jobs(client: ApiClient, status: str | None, project: str | None, session: str | None, limit: int) -> None:
    """List the team's jobs, newest first."""
    await _list(client, {"status": status, "project": project, "session": session}, limit)


@jobs.command()
@click.option("--project", help="Only jobs of this project.")
@limit_option
@api_command
async def failed(client: ApiClient, project: str | None, limit: int) -> None:
    """List the jobs that have failed for good, and why."""
    await _list(client, {"status": "failed", "project": project}, limit)


async def _list(client: ApiClient, query: Mapping[str, str | None], limit: int) -> None:
    answer = await client.pages("/v1/jobs", "jobs", query, limit=limit)
    client.show(answer, JobsOut, _table)


def _table(page: JobsOut) -> str:
    return render_table(
        ("project", "session", "of", "status", "tries", "created", "id", "error"),
        [
            (
                job.project or job.project_id,
                job.session_title or job.server_session_id,
                job.source_type,
                job.status,
                f"{job.attempts}/{job.max_attempts}",
                format_time(job.created_at_epoch),
                job.id,
                _error(job.last_error),
            )
            for job in page.jobs
        ],
        empty="There are no such jobs.",
        shrink=("project", "session", "error"),
        next_cursor=page.next_cursor,
    )


def _error(error: Mapping[str, object] | None) -> str:
    return ": ".join(str(text) for name in ("reason", "message") if (text := (error or {}).get(name)))


@jobs.command()
@click.argument("job_id")
@click.option("--answer", "with_answer", is_flag=True, help="Also the provider's answer, if it is stored; needs the scope admin.")
@api_command
async def show(client: ApiClient, job_id: str, *, with_answer: bool) -> None:
    """Show one job, its newest provider call, and its history."""
    answer = await client.get(_path(job_id), {"include": "payload"} if with_answer else None)
    if client.as_json:
        client.show(answer, JobDetailOut, _lines)
        return
    history = (await client.pages(f"{_path(job_id)}/events", "events", limit=_MAX_STEPS)).read(JobEventsOut)
    client.show(
        answer,
        JobDetailOut,
        lambda detail: f"{_lines(detail)}\n\n{_render_history(history)}{_answer(detail.run) if with_answer else ''}",
    )


def _lines(detail: JobDetailOut) -> str:
    job = detail.generation_job
    return render_fields(
        ("id", job.id),
        ("type", job.job_type),
        ("status", job.status),
        ("tries", f"{job.attempts}/{job.max_attempts}"),
        ("project", job.project_id),
        ("session", job.server_session_id),
        (job.source_type, job.source_id),
        ("created", format_time(job.created_at_epoch)),
        ("next try", format_time(job.next_attempt_at_epoch)),
        ("completed", format_time(job.completed_at_epoch)),
        ("failed", format_time(job.failed_at_epoch)),
        ("cancelled", format_time(job.cancelled_at_epoch)),
        *((("outcome", ": ".join(filter(None, [job.outcome, job.outcome_reason]))),) if job.outcome else ()),
        ("error", _error(job.last_error)),
        *(_run_fields(detail.run) if detail.run else ()),
    )


def _run_fields(run: RunOut) -> tuple[tuple[str, Cell], ...]:
    cost = "" if run.cost_usd is None else f", ${run.cost_usd}"
    error = {"reason": run.error_class, "message": run.error_message}
    return (
        ("call", f"{run.provider} ({run.model}): {run.status}"),
        ("call took", f"{run.latency_ms / 1000:.1f} s, {run.input_tokens:,} tokens in, {run.output_tokens:,} out{cost}"),
        *((("call failed", _error(error)),) if run.error_class else ()),
    )


def _render_history(history: JobEventsOut) -> str:
    return render_table(
        ("when", "what", "details"),
        [
            (
                format_time(event.created_at_epoch),
                event.event_type,
                msgspec.json.encode(event.details).decode() if event.details else None,
            )
            for event in history.events
        ],
        empty="The job has no history.",
        shrink=("details",),
    )


def _answer(run: RunOut | None) -> str:
    text = run.answer if run else None
    return "\n\n" + ("\n".join(map(sanitize_line, text.splitlines())) if isinstance(text, str) else "No answer is stored.")


@jobs.command()
@click.argument("job_id")
@api_command
async def retry(client: ApiClient, job_id: str) -> None:
    """Put a failed or cancelled job back into the queue."""
    client.show(await client.post(f"{_path(job_id)}/retry"), RetriedJobOut, _retry_line)


def _retry_line(result: RetriedJobOut) -> str:
    return f"The job {result.generation_job.id} {'was queued already' if result.already_queued else 'is queued again'}."


@jobs.command()
@click.argument("job_id")
@api_command
async def cancel(client: ApiClient, job_id: str) -> None:
    """Take a job out of the queue; a running one is stopped and writes nothing."""
    client.show(await client.post(f"{_path(job_id)}/cancel"), CancelledJobOut, _cancel_line)


def _cancel_line(result: CancelledJobOut) -> str:
    job = result.generation_job
    if job.status == "processing":
        return f"The job {job.id} is being stopped; it writes nothing."
    return f"The job {job.id} {'was cancelled already' if result.already_cancelled else 'is cancelled'}."


def _path(job_id: str) -> str:
    return f"/v1/jobs/{path_segment(job_id)}"
