"""`cmserver jobs`: what is more than its verb; the other commands are rows of verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, get_args

import click
from msgspec import UNSET

from cmserver.base.columns import Cell, Columns, format_time, render_fields
from cmserver.base.errors import Forbidden
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import ApiClient, api_command, confirm, path_segment, present, yes_option
from cmserver.generation import wire as generation_wire
from cmserver.generation.model import Status
from cmserver.generation.operate.model import SourceType
from cmserver.generation.operate.words import explain_error, explain_help, explain_outcome
from cmserver.ops.wire import InfoOut

_MAX_STEPS = 1000

Out = TypeVar("Out")


@click.group()
def jobs() -> None:
    """The queue: a job for each event and each session's summary, and for what the steward does."""


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
        ("waiting", queue.waiting + queue.delayed),
        ("of these until a time, or a turn's end", queue.delayed),
        ("active", queue.active),
        ("held", queue.held),
        ("completed", queue.completed),
        ("failed", queue.failed),
        ("cancelled", queue.cancelled),
        ("recovered from lost workers", queue.recovered),
        ("oldest", oldest),
        *((("warning", queue.warning),) if queue.warning else ()),
    )


@jobs.command()
@click.argument("job_id")
@click.option("--answer", "with_answer", is_flag=True, help="Also the provider's answer, if it is stored; needs the scope admin.")
@api_command
async def show(client: ApiClient, job_id: str, *, with_answer: bool) -> None:
    """Show one job, its newest provider call, and its history."""
    answer = await client.get(_path(job_id), {"include": "payload"} if with_answer else None)
    if client.as_json:
        client.show(answer, generation_wire.JobDetailOut, _lines)
        return
    history = (await client.pages(f"{_path(job_id)}/events", "events", limit=_MAX_STEPS)).read(generation_wire.JobEventsOut)
    client.show(
        answer,
        generation_wire.JobDetailOut,
        lambda detail: (
            f"{_lines(detail)}\n\n{generation_wire.render_history(history.events)}{_answer(detail.run) if with_answer else ''}"
        ),
    )


_LINES = Columns(
    generation_wire.JobOut,
    "id, type=job_type, status, tries, project=project_id, session=server_session_id",
    tries=lambda job: f"{job.attempts}/{job.max_attempts}",
)
_TIMES = Columns(generation_wire.JobOut, "created, next try=next_attempt, completed, failed, cancelled")


def _lines(detail: generation_wire.JobDetailOut) -> str:
    job = detail.generation_job
    return render_fields(
        *_LINES.fields(job),
        (job.source_type, job.source_id),
        *_TIMES.fields(job),
        *((("outcome", _describe_outcome(job)),) if job.outcome else ()),
        *((("waits", job.waits_for),) if job.waits_for else ()),
        ("error", explain_error(job.last_error)),
        *((("what helps", explain_help(job.last_error)),) if job.status == "failed" else ()),
        *(_run_fields(detail.run) if detail.run else ()),
    )


def _describe_outcome(job: generation_wire.JobOut) -> str:
    return ": ".join(filter(None, [job.outcome, explain_outcome(job.source_type, job.outcome_reason)]))


def _run_fields(run: generation_wire.RunOut) -> tuple[tuple[str, Cell], ...]:
    cost = "" if run.cost_usd is None else f", ${run.cost_usd}"
    error = {"reason": run.error_class, "message": run.error_message}
    return (
        ("call", f"{run.provider} ({run.model}): {run.status}"),
        ("call took", f"{run.latency_ms / 1000:.1f} s, {run.input_tokens:,} tokens in, {run.output_tokens:,} out{cost}"),
        *((("call failed", explain_error(error)),) if run.error_class else ()),
    )


def _answer(run: generation_wire.RunOut | None) -> str:
    text = run.answer if run else None
    return "\n\n" + ("\n".join(map(sanitize_line, text.splitlines())) if isinstance(text, str) else "No answer is stored.")


@jobs.command()
@click.argument("job_id")
@click.option("--answer", "with_answer", is_flag=True, help="Also the answers, where they are stored; needs the scope admin.")
@api_command
async def calls(client: ApiClient, job_id: str, *, with_answer: bool) -> None:
    """List the provider calls of a job, newest first."""
    answer = await client.get(f"{_path(job_id)}/calls", {"include": "payload"} if with_answer else None)
    client.show(answer, generation_wire.JobCallsOut, lambda page: _render_calls(page, with_answer=with_answer))


def _render_calls(page: generation_wire.JobCallsOut, *, with_answer: bool) -> str:
    if not page.calls:
        return "No provider was called for the job."
    return "\n\n".join(
        f"{render_fields(('when', format_time(call.created_at_epoch)), *_run_fields(call))}{_answer(call) if with_answer else ''}"
        for call in page.calls
    )


_selection_options = (
    click.argument("job_id", required=False),
    click.option("--all", "all_jobs", is_flag=True, help="All jobs that match the options, up to 1,000, instead of one."),
    click.option("--status", type=click.Choice(get_args(Status)), help="With --all: only jobs with this status."),
    click.option("--project", help="With --all: only jobs of this project."),
    click.option("--session", metavar="ID", help="With --all: only jobs of this session."),
    click.option("--source", type=click.Choice(get_args(SourceType)), help="With --all: only jobs that were made for this."),
    yes_option,
)


def _add_verb(verb: str, type_: type[Out], render: Callable[[Out], str], text: str) -> None:
    """A command that does it to one job, or to many after a question with their number."""

    async def act(
        client: ApiClient,
        job_id: str | None,
        *,
        all_jobs: bool,
        status: str | None,
        project: str | None,
        session: str | None,
        source: str | None,
        yes: bool,
    ) -> None:
        conditions = {"status": status, "projectId": project, "sessionId": session, "sourceType": source}
        selection = _read_selection(job_id, conditions, all_jobs=all_jobs)
        if selection is None:
            client.show(await client.post(f"{_path(job_id or '')}/{verb}"), type_, render)
        else:
            await _act_on_many(client, verb, selection, yes=yes)

    command = api_command(act)
    for option in reversed(_selection_options):
        command = option(command)
    jobs.command(verb, help=text)(command)


def _retry_line(result: generation_wire.RetriedJobOut) -> str:
    return f"The job {result.generation_job.id} {'was queued already' if result.already_queued else 'is queued again'}."


def _cancel_line(result: generation_wire.CancelledJobOut) -> str:
    job = result.generation_job
    if job.status == "processing":
        return f"The job {job.id} is being stopped; it writes nothing."
    return f"The job {job.id} {'was cancelled already' if result.already_cancelled else 'is cancelled'}."


_add_verb(
    "retry",
    generation_wire.RetriedJobOut,
    _retry_line,
    "Put a failed or cancelled job back into the queue; with --all every failed one, after a question with their number.",
)
_add_verb(
    "cancel",
    generation_wire.CancelledJobOut,
    _cancel_line,
    "Take a job out of the queue; a running one is stopped and writes nothing. With --all every queued or running one.",
)


def _read_selection(job_id: str | None, conditions: Mapping[str, str | None], *, all_jobs: bool) -> dict[str, object] | None:
    """The body that selects many jobs; None for a single job."""
    if all_jobs == (job_id is not None):
        raise click.UsageError("Name one job, or pass --all.")
    if not all_jobs and any(conditions.values()):
        raise click.UsageError("--status, --project, --session and --source need --all.")
    return present(conditions) if all_jobs else None


async def _act_on_many(client: ApiClient, verb: str, selection: Mapping[str, object], *, yes: bool) -> None:
    """Ask with the number of jobs, then act."""
    path = f"/v1/jobs/{verb}"
    count = (await client.post(path, {**selection, "dryRun": True})).read(generation_wire.SelectedJobsOut)
    many = (
        "more than 1,000 jobs; 1,000 at a time" if count.has_more else f"{count.matched:,} job{'' if count.matched == 1 else 's'}"
    )
    if count.matched:
        confirm(f"{verb.capitalize()} {many}?", yes=yes)
    client.show(await client.post(path, selection), generation_wire.SelectedJobsOut, lambda result: _selected_line(result, verb))


def _selected_line(result: generation_wire.SelectedJobsOut, verb: str) -> str:
    what = "queued again" if verb == "retry" else "cancelled"
    more = " There are more: run the command again." if result.has_more else ""
    return f"{result.changed:,} job{' is' if result.changed == 1 else 's are'} {what}.{more}"


def _path(job_id: str) -> str:
    return f"/v1/jobs/{path_segment(job_id)}"
