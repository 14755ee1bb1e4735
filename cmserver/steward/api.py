"""The steward over HTTP, and what its commands show."""

from __future__ import annotations

import msgspec

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall, command, option
from cmserver.base.columns import Cell, Columns, format_time, render_fields, render_table
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.ids import named_id
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.settings import Settings
from cmserver.base.structs import reshape
from cmserver.base.tolerant_json import array
from cmserver.generation.operate.words import in_words
from cmserver.generation.wire import render_history
from cmserver.steward import operate, repository, wire
from cmserver.steward.model import UndoneEffect
from cmserver.steward.policies import repository as policies
from cmserver.steward.policies import thresholds
from cmserver.steward.undo import undo_run


def render_status(status: wire.StewardStatusOut, _: object = None) -> str:
    metrics, queue, breaker = status.metrics, status.queue, status.breaker
    rate = "no runs" if metrics.success_rate is None else f"{metrics.success_rate:.0%} of {metrics.runs}"
    failures = ", ".join(f"{in_words(row.reason)} ({row.count})" for row in metrics.top_failures)
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
        ("model", f"not asked until {until}: {in_words(breaker.last_failure)}" if breaker.is_open else "asked when it is needed"),
    )


_RUN_COLUMNS = Columns(
    wire.StewardRunOut,
    "when=created, executor=job_type, project, status, decision, tokens, id",
    status=lambda run: "undone" if run.undone_at_epoch else run.status,
    decision=lambda run: _decision(run.output) or in_words(run.error_class or ""),
    tokens=lambda run: run.total_tokens or None,
)


def _decision(output: dict[str, object] | None) -> str:
    if output is None:
        return ""
    return f"{in_words(output.get('decision'))}: {in_words([*array(output.get('reasons'))])}"


def _render_run(detail: wire.StewardRunDetailOut, _: object) -> str:
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
        ("error", ": ".join(filter(None, [in_words(run.error_class or ""), run.error_message])) or None),
        ("undone", f"{format_time(run.undone_at_epoch)} by {run.undone_by}" if run.undone_at_epoch else None),
        ("input", msgspec.json.encode(run.input).decode()),
        ("output", msgspec.json.encode(run.output).decode()),
    )
    return f"{fields}\n\n{render_history(detail.events)}"


_UNDONE_COLUMNS = Columns(
    UndoneEffect,
    "what=kind, of, shown again=restored",
    of=lambda effect: None if effect.number is None else f"#{effect.number}",
    restored=lambda effect: ", ".join(f"#{number}" for number in effect.restored),
)


def _render_acts(result: wire.ActsOut, _: object) -> str:
    rows: list[tuple[Cell, ...]] = []
    for act in result.acts:
        evidence = " ".join([*(f"#{number}" for number in act.by_numbers), act.why])
        what = act.kind if act.run_id is None else f"steward run {act.run_id}"
        rows.append((format_time(act.at_epoch), what, act.number, sanitize_line(act.title), evidence))
    return render_table(["WHEN", "WHAT", "NUMBER", "TITLE", "WHY"], rows, empty="Nothing happened by itself.", shrink=["TITLE"])


@command("steward status", render_status, text="Show the mode, what waits, and how the last runs went.")
@verb.get("/v1/steward", "observations:read")
async def get_status(call: VerbCall) -> wire.StewardStatusOut:
    """What the steward may do and has to do, and how it does."""
    async with call.read() as conn:
        return wire.status_out(await operate.read_status(conn, call.principal))


@command(
    "acts",
    _render_acts,
    text="Show what happened by itself in the last seven days, and why: merges, repeats, closed open ends, the steward's runs.",
)
@option("--project", "Only of this project.")
@option("--limit", "How many.")
@verb.get("/v1/acts", "observations:read")
async def get_acts(call: VerbCall, given: wire.ActsQuery) -> wire.ActsOut:
    """What happened by itself in the last seven days: merges, repeats, closed open ends, and what the steward wrote."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    async with call.read() as conn:
        acts = await repository.automatic_acts(conn, call.principal.team_id, project_id, given.limit)
    return wire.ActsOut(acts=[reshape(act, wire.ActOut, why=act.why) for act in acts])


@verb.put("/v1/steward/mode", "admin")
async def put_mode(call: VerbCall, given: wire.ModeIn) -> wire.StewardStatusOut:
    """Switch the steward of the team off, to a dry run, or to writing; pause it; choose executors, also of one project."""
    principal = call.principal
    project_id = await call.dependency(Projects).within(principal, given.project)
    if given.project is not None and (given.mode is not None or given.paused is not None or given.executors is None):
        raise Invalid.at("$.project", "With a project send `executors`, and neither `mode` nor `paused`: those are the team's.")
    async with call.read() as conn:
        if given.project is not None and project_id is not None:
            await operate.set_project_executors(conn, principal, project_id, given.executors or [])
        else:
            await operate.set_mode(conn, principal, mode=given.mode, is_paused=given.paused, executors=given.executors)
        return wire.status_out(await operate.read_status(conn, principal))


@command(
    "steward run",
    lambda result, _: f"{len(result.queued)} jobs were queued.",
    text="Queue all that there is to do, at once.",
)
@option("--project", "Only in this project.")
@option("--executor", "Only this one; repeat for several.", field="executors")
@verb.post("/v1/steward/run", "admin", status=202)
async def post_run(call: VerbCall, given: wire.RunNowIn) -> wire.QueuedJobsOut:
    """Queue all that there is to do at once; 409 while the steward is off or paused."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    db, settings = call.dependency(Db), call.dependency(Settings)
    queued = await operate.run_now(db, settings, call.principal, project_id=project_id, job_types=given.executors)
    return wire.QueuedJobsOut(queued=queued)


@command(
    "steward runs",
    _RUN_COLUMNS.page("runs", "There are no such runs.", shrink=("project", "decision")),
    text="List what it did, newest first.",
)
@option("--project", "Only of this project.")
@option("--status", "Only runs with this status.")
@option("--executor", "Only of this executor.", field="job_type")
@verb.get("/v1/steward/runs", "observations:read")
async def get_runs(call: VerbCall, given: wire.RunsQuery) -> wire.StewardRunsOut:
    """What the steward did, newest first."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    async with call.read() as conn:
        runs, next_cursor = await operate.list_runs(
            conn,
            call.principal,
            project_id=project_id,
            status=given.status,
            job_type=given.job_type,
            limit=given.limit,
            cursor=given.cursor,
        )
    return wire.StewardRunsOut(runs=[*map(wire.run_out, runs)], next_cursor=next_cursor)


@command("steward show", _render_run, text="Show one run: what it looked at, decided and wrote, and the steps of its job.")
@option("RUN_ID", field="id")
@verb.get("/v1/steward/runs/{id}", "observations:read")
async def get_run(call: VerbCall, given: str) -> wire.StewardRunDetailOut:
    """One run: what it looked at, decided and wrote, and the timeline of its job."""
    async with call.read() as conn:
        return wire.detail_out(await operate.read_run(conn, call.principal, named_id(given)))


@command(
    "steward undo",
    _UNDONE_COLUMNS.page("undone", ""),
    text="Take back all that a run wrote, or say what stands in the way.",
    confirm=lambda typed: f"Take back all that the run {typed['run_id']} wrote?",
)
@option("RUN_ID", field="id")
@verb.post("/v1/steward/runs/{id}/undo", "admin")
async def post_undo(call: VerbCall, given: str) -> wire.UndoneRunOut:
    """Take back all that a run wrote; 409 names the later act that stands in the way, and then nothing is changed."""
    run, undone = await call.write(lambda conn: undo_run(conn, call.principal, named_id(given)))
    return wire.undone_out(run, undone)


@verb.get("/v1/steward/policies", "observations:read")
async def get_policies(call: VerbCall, given: wire.PolicyHistoryQuery) -> wire.PoliciesOut:
    """The steward's thresholds, their bounds, and their changes with the evidence."""
    async with call.read() as conn:
        values = await thresholds.read_values(conn, call.principal.team_id)
        history = await policies.history(conn, call.principal.team_id, policy_key=given.key, limit=given.limit)
    return wire.policies_out(values, history)


@verb.post("/v1/steward/policies/{key}/rollback", "admin")
async def post_rollback(call: VerbCall, given: str) -> wire.OnePolicyChangeOut:
    """Take back the last change of a threshold that was not taken back yet."""
    operate.require_team_key(call.principal)
    change = await call.write(lambda conn: thresholds.roll_back(conn, call.principal, given))
    return wire.OnePolicyChangeOut(change=reshape(change, wire.PolicyChangeOut))


routes = [get_status, put_mode, post_run, get_acts, get_runs, get_run, post_undo, get_policies, post_rollback]
