"""`cmserver steward`: what the steward may do, did, and how it is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import click
import msgspec

from cmserver.base.columns import Columns, format_time, render_fields
from cmserver.base.tolerant_json import array
from cmserver.cli.api_client import ApiClient, api_command, confirm, limit_option, path_segment, present, yes_option
from cmserver.cli.jobs import render_history
from cmserver.cli.output import as_called
from cmserver.steward import wire as steward_wire
from cmserver.steward.model import JOB_TYPES, Mode, RunStatus, UndoneEffect

_MOVED = {"jobs": "cmserver jobs list --source steward", "retry": "cmserver jobs retry JOB", "cancel": "cmserver jobs cancel JOB"}


class _Group(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if instead := _MOVED.get(cmd_name):
            ctx.fail(as_called(f"The steward's jobs are those of the queue: use `{instead}`."))
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group)
def steward() -> None:
    """The steward: merges, marks and derives observations as far as the team lets it."""


@steward.command()
@api_command
async def status(client: ApiClient) -> None:
    """Show the mode, what waits, and how the last runs went."""
    client.show(await client.get("/v1/steward"), steward_wire.StewardStatusOut, _status_lines)


def _status_lines(status: steward_wire.StewardStatusOut) -> str:
    metrics, queue, breaker = status.metrics, status.queue, status.breaker
    rate = "no runs" if metrics.success_rate is None else f"{metrics.success_rate:.0%} of {metrics.runs}"
    failures = ", ".join(f"{row.reason} ({row.count})" for row in metrics.top_failures)
    until = format_time(breaker.open_until_epoch)
    return render_fields(
        ("mode", f"{status.mode}, paused" if status.paused else status.mode),
        ("executors", ", ".join(status.executors)),
        *((f"in {row.project}", ", ".join(row.executors) or "none") for row in status.projects),
        ("changed", f"{format_time(status.changed_at_epoch)} by {status.changed_by}" if status.changed_by else None),
        ("queued", f"{queue.queued} (at most {queue.max_queued}, {queue.max_queued_of_project} of a project)"),
        ("running", queue.running),
        ("dead letters in 24 h", queue.dead_letter),
        ("runs in an hour", metrics.runs_last_hour),
        ("success in 24 h", rate),
        ("tokens a run", f"{metrics.average_tokens:,.0f}"),
        ("95 % of runs take", None if metrics.p95_latency_ms is None else f"{metrics.p95_latency_ms / 1000:.1f} s or less"),
        ("failures", failures or None),
        ("model", f"not asked until {until}: {breaker.last_failure}" if breaker.is_open else "asked when it is needed"),
    )


@steward.command()
@click.argument("mode", required=False, type=click.Choice(get_args(Mode)))
@click.option("--pause/--resume", "paused", default=None, help="Stop for now, or go on.")
@click.option("--executor", "executors", multiple=True, type=click.Choice(JOB_TYPES), help="What it may do; repeat for several.")
@click.option("--project", help="Narrow the executors of this project only.")
@click.option("--no-executors", is_flag=True, help="It may do nothing (in the project).")
@api_command
async def mode(
    client: ApiClient,
    mode: str | None,
    paused: bool | None,
    executors: Sequence[str],
    project: str | None,
    *,
    no_executors: bool,
) -> None:
    """Switch it off, to a dry run (it decides and writes nothing), or to writing. Needs the scope admin."""
    chosen = [] if no_executors else list(executors) or None
    body = present({"mode": mode, "paused": paused, "executors": chosen, "project": project})
    client.show(await client.put("/v1/steward/mode", body), steward_wire.StewardStatusOut, _status_lines)


@steward.command()
@click.option("--project", help="Only in this project.")
@click.option("--executor", "executors", multiple=True, type=click.Choice(JOB_TYPES), help="Only this one; repeat for several.")
@api_command
async def run(client: ApiClient, project: str | None, executors: Sequence[str]) -> None:
    """Queue all that there is to do, at once."""
    body = present({"project": project, "executors": list(executors) or None})
    answer = await client.post("/v1/steward/run", body)
    client.show(answer, steward_wire.QueuedJobsOut, lambda queued: f"{len(queued.queued)} jobs were queued.")


@steward.command()
@click.option("--project", help="Only of this project.")
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only runs with this status.")
@click.option("--executor", type=click.Choice(JOB_TYPES), help="Only of this executor.")
@limit_option
@api_command
async def runs(client: ApiClient, project: str | None, status: str | None, executor: str | None, limit: int) -> None:
    """List what it did, newest first."""
    query = {"project": project, "status": status, "jobType": executor}
    client.show(await client.pages("/v1/steward/runs", "runs", query, limit=limit), steward_wire.StewardRunsOut, _runs_table)


_RUN_COLUMNS = Columns(
    steward_wire.StewardRunOut,
    "when=created, executor=job_type, project, status, decision, tokens, id",
    status=lambda run: "undone" if run.undone_at_epoch else run.status,
    decision=lambda run: _decision(run.output) or run.error_class,
    tokens=lambda run: run.total_tokens or None,
)


def _runs_table(page: steward_wire.StewardRunsOut) -> str:
    return _RUN_COLUMNS.table(page.runs, page.next_cursor, empty="There are no such runs.", shrink=("project", "decision"))


def _decision(output: dict[str, object] | None) -> str:
    if output is None:
        return ""
    return f"{output.get('decision')}: {', '.join(map(str, array(output.get('reasons'))))}"


@steward.command()
@click.argument("run_id")
@api_command
async def show(client: ApiClient, run_id: str) -> None:
    """Show one run: what it looked at, decided and wrote, and the steps of its job."""
    client.show(await client.get(_run_path(run_id)), steward_wire.StewardRunDetailOut, _detail_lines)


def _detail_lines(detail: steward_wire.StewardRunDetailOut) -> str:
    run = detail.run
    model = (
        f"{run.provider} ({run.model}), {run.prompt_tokens:,} tokens in, {run.completion_tokens:,} out" if run.provider else None
    )
    fields = render_fields(
        ("id", run.id),
        ("executor", run.job_type),
        ("project", run.project),
        ("status", run.status),
        ("job", detail.job and f"{run.job_id} ({detail.job.status}, try {run.attempt} of {detail.job.max_attempts})"),
        ("model", model),
        ("took", None if run.latency_ms is None else f"{run.latency_ms / 1000:.2f} s"),
        ("decision", _decision(run.output) or None),
        ("error", ": ".join(filter(None, [run.error_class, run.error_message])) or None),
        ("undone", f"{format_time(run.undone_at_epoch)} by {run.undone_by}" if run.undone_at_epoch else None),
        ("input", msgspec.json.encode(run.input).decode()),
        ("output", msgspec.json.encode(run.output).decode()),
    )
    return f"{fields}\n\n{render_history(detail.events)}"


@steward.command()
@click.argument("run_id")
@yes_option
@api_command
async def undo(client: ApiClient, run_id: str, *, yes: bool) -> None:
    """Take back all that a run wrote, or say what stands in the way."""
    confirm(f"Take back all that the run {run_id} wrote?", yes=yes)
    answer = await client.post(f"{_run_path(run_id)}/undo", {})
    client.show(answer, steward_wire.UndoneRunOut, _undone_lines)


_UNDONE_COLUMNS = Columns(
    UndoneEffect,
    "what=kind, of, shown again=restored",
    of=lambda effect: None if effect.number is None else f"#{effect.number}",
    restored=lambda effect: ", ".join(f"#{number}" for number in effect.restored),
)


def _undone_lines(undone: steward_wire.UndoneRunOut) -> str:
    return _UNDONE_COLUMNS.table(undone.undone, empty="")


@steward.command()
@click.option("--rollback", metavar="KEY", help="Take back the last change of this threshold.")
@api_command
async def policies(client: ApiClient, rollback: str | None) -> None:
    """Show the thresholds and their changes, or take one back."""
    if rollback is not None:
        answer = await client.post(f"/v1/steward/policies/{path_segment(rollback)}/rollback", {})
        client.show(
            answer, steward_wire.OnePolicyChangeOut, lambda one: f"{one.change.policy_key} is {one.change.new_value:g} again."
        )
        return
    client.show(await client.get("/v1/steward/policies"), steward_wire.PoliciesOut, _policy_lines)


_POLICY_COLUMNS = Columns(
    steward_wire.PolicyOut,
    "policy=key, value, usual, bounds, meaning",
    value=lambda policy: f"{policy.value:g}",
    usual=lambda policy: f"{policy.usual:g}",
    bounds=lambda policy: f"{policy.least:g} to {policy.most:g}",
)
_CHANGE_COLUMNS = Columns(
    steward_wire.PolicyChangeOut,
    "when=created, policy=policy_key, from=prior, to=new, why=reason, sample=sample_size, by=changed_by",
    prior=lambda change: f"{change.prior_value:g}",
    new=lambda change: f"{change.new_value:g}",
)


def _policy_lines(page: steward_wire.PoliciesOut) -> str:
    history = _CHANGE_COLUMNS.table(page.history, empty="No threshold was changed.", shrink=("why",))
    return f"{_POLICY_COLUMNS.table(page.policies, empty='', shrink=('meaning',))}\n\n{history}"


def _run_path(run_id: str) -> str:
    return f"/v1/steward/runs/{path_segment(run_id)}"
