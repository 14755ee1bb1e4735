"""Replays, over HTTP and on the command line."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall, command, option
from cmserver.base import paging
from cmserver.base.columns import Columns, render_fields
from cmserver.base.settings import Settings
from cmserver.observations.plain import one_line
from cmserver.replays import change_replay, repository, take_over
from cmserver.replays.wire import (
    ReplayEstimateOut,
    ReplayIn,
    ReplayLineOut,
    ReplayLinesOut,
    ReplayLinesQuery,
    ReplayOut,
    ReplaysOut,
    ReplaysQuery,
    TakeOverOut,
    ToldRowOut,
    estimate_out,
    line_out,
    read_place,
    replay_out,
)

_CHARS = 200
_STATE = {"taken_over": "taken over"}


def render_replay(replay: ReplayOut, _: object = None) -> str:
    """How far it is, and the counts."""
    differences = replay.lost + replay.new + replay.reworded
    state = _STATE.get(replay.state, replay.state)
    return render_fields(
        ("replay", replay.number),
        ("state", f"{state}: {replay.reason}" if replay.reason else state),
        ("worded by", "rules" if replay.provider == "offline" else replay.provider),
        ("sessions", f"{replay.sessions_done:,} of {replay.sessions:,}"),
        ("events", f"{replay.events_done:,} of {replay.events:,}"),
        ("left out", f"{replay.purged:,} sessions, of which retention has taken what was said" if replay.purged else None),
        ("differences", f"{differences:,}: {replay.lost:,} lost, {replay.new:,} new, {replay.reworded:,} reworded"),
        ("the same", replay.kept),
        ("by people", replay.by_people),
    )


def render_line(line: ReplayLineOut) -> str:
    """What is remembered, and below it what would be."""
    number = "" if line.number is None else f" #{line.number}"
    return "\n".join(
        [
            f"{line.difference} {line.what}{number}",
            *(f"  - {render_told(line.before)}" for _ in [0] if line.before is not None),
            *(f"  + {render_told(line.after)}" for _ in [0] if line.after is not None),
        ]
    )


def render_told(told: ToldRowOut) -> str:
    """A row in a line."""
    if told.type is None:
        return one_line("; ".join([*told.files, *told.checks, *told.commits]) or "nothing was done", _CHARS)
    is_open = " (open)" if told.is_open else ""
    return one_line(f"[{told.type}]{is_open} {told.text}", _CHARS)


def render_lines(page: ReplayLinesOut, _: object = None) -> str:
    """The lines of a page."""
    if not page.lines:
        return "No differences."
    more = [] if page.next_cursor is None else [f"More: --cursor {page.next_cursor}"]
    return "\n".join([*map(render_line, page.lines), *more])


def render_taken(taken: TakeOverOut, _: object = None) -> str:
    """What was written or taken back."""
    left = f" {taken.left:,} were left alone: somebody has changed them." if taken.left else ""
    if taken.replay.state == "taken_over":
        return f"Took over replay {taken.replay.number}: {taken.written:,} rows were written.{left}"
    return f"Undid the take-over of replay {taken.replay.number}: {taken.written:,} rows are as they were.{left}"


_TABLE = Columns(
    ReplayOut,
    "number, state, worded by=provider, sessions, lost, new, reworded, the same=kept, created",
    state=lambda replay: _STATE.get(replay.state, replay.state),
    sessions=lambda replay: f"{replay.sessions_done}/{replay.sessions}",
)


@verb.post("/v1/replays/estimate", "jobs:write")
async def post_estimate(call: VerbCall, given: ReplayIn) -> ReplayEstimateOut:
    """Say what a replay would run, and what a model would cost, without beginning it."""
    return estimate_out((await _estimate(call, given))[1])


@verb.post("/v1/replays", "jobs:write", status=201)
async def post_replay(call: VerbCall, given: ReplayIn) -> ReplayOut:
    """Run stored events again by today's rules, or by a model within the budgets, and keep what would be remembered otherwise.

    A worker runs it, in tables that nobody is told from. `POST /v1/replays/estimate` says before what it costs.
    """
    project_id, measured = await _estimate(call, given)
    return replay_out(await call.write(lambda conn: change_replay.begin_replay(conn, call.principal, project_id, measured)))


@command("replays list", _TABLE.page("replays", "There are no replays. `cmserver replay` begins one."))
@verb.get("/v1/replays", "observations:read")
async def get_replays(call: VerbCall, given: ReplaysQuery) -> ReplaysOut:
    """List replays, newest first."""
    before, before_id = paging.place(given.cursor)
    async with call.read() as conn:
        rows = await repository.page(
            conn, call.principal.team_id, call.principal.project_id, before=before, before_id=before_id, limit=given.limit + 1
        )
    replays, next_cursor = paging.page(rows, given.limit, lambda replay: (replay.created_at, replay.id))
    return ReplaysOut(replays=[*map(replay_out, replays)], next_cursor=next_cursor)


@command("replays show", render_replay)
@option("NUMBER", field="id")
@verb.get("/v1/replays/{id}", "observations:read")
async def get_replay(call: VerbCall, given: str) -> ReplayOut:
    """Show how far a replay is, and how many rows would be others."""
    async with call.read() as conn:
        return replay_out(await change_replay.find_replay(conn, call.principal, given))


@command("replays lines", render_lines)
@option("NUMBER", field="id")
@option("--difference", "Only what would be lost, new or reworded.")
@verb.get("/v1/replays/{id}/lines", "observations:read")
async def get_lines(call: VerbCall, given: ReplayLinesQuery) -> ReplayLinesOut:
    """List what would be lost, new and reworded, old above new."""
    after = read_place(given.cursor)
    async with call.read() as conn:
        replay = await change_replay.find_replay(conn, call.principal, given.id)
        rows = await repository.lines(
            conn, call.principal.team_id, replay.id, difference=given.difference, after=after, limit=given.limit + 1
        )
    page = rows[: given.limit]
    return ReplayLinesOut(lines=[*map(line_out, page)], next_cursor=str(page[-1].place) if len(rows) > given.limit else None)


@command(
    "replays stop", lambda replay, _: f"Stopped replay {replay.number}. `cmserver replays resume {replay.number}` goes on with it."
)
@option("NUMBER", field="id")
@verb.post("/v1/replays/{id}/stop", "jobs:write")
async def post_stop(call: VerbCall, given: str) -> ReplayOut:
    """Stop a replay after the sessions that are under way."""
    return replay_out(await call.write(lambda conn: change_replay.stop_replay(conn, call.principal, given)))


@command("replays resume", lambda replay, _: f"Replay {replay.number} goes on.")
@option("NUMBER", field="id")
@verb.post("/v1/replays/{id}/resume", "jobs:write")
async def post_resume(call: VerbCall, given: str) -> ReplayOut:
    """Go on with a replay that was stopped."""
    return replay_out(await call.write(lambda conn: change_replay.resume_replay(conn, call.principal, given)))


@command("replays take-over", render_taken)
@option("NUMBER", field="id")
@verb.post("/v1/replays/{id}/take-over", "admin")
async def post_take_over(call: VerbCall, given: str) -> TakeOverOut:
    """Write what a replay would remember into the memory, in one transaction. What somebody has changed since is left alone."""
    return _taken_out(await call.write(lambda conn: take_over.take_over(conn, call.principal, given)))


@command("replays undo", render_taken)
@option("NUMBER", field="id")
@verb.post("/v1/replays/{id}/undo", "admin")
async def post_undo(call: VerbCall, given: str) -> TakeOverOut:
    """Take back what was written of a replay, as far as nobody has changed it since."""
    return _taken_out(await call.write(lambda conn: take_over.undo_take_over(conn, call.principal, given)))


@command(
    "replays remove",
    lambda replay, _: f"Removed replay {replay.number}.",
    confirm=lambda typed: f"Throw replay {typed['number']} away, with its lines?",
)
@option("NUMBER", field="id")
@verb.delete("/v1/replays/{id}", "jobs:write")
async def delete_replay(call: VerbCall, given: str) -> ReplayOut:
    """Throw a replay away, running or not. What was taken over of it stays, and cannot be undone any more."""
    return replay_out(await call.write(lambda conn: change_replay.remove_replay(conn, call.principal, given)))


async def _estimate(call: VerbCall, given: ReplayIn) -> tuple[UUID | None, change_replay.Estimate]:
    settings = call.dependency(Settings)
    provider = change_replay.check_provider(settings, call.principal, given.provider)
    project_id = await call.dependency(Projects).within(call.principal, given.project_id)
    async with call.read() as conn:
        return project_id, await change_replay.estimate(conn, settings, call.principal, project_id, given.since, provider)


def _taken_out(taken: take_over.TakeOverResult) -> TakeOverOut:
    return TakeOverOut(replay=replay_out(taken.replay), written=taken.written, left=taken.left)


routes = [
    post_estimate,
    post_replay,
    get_replays,
    get_replay,
    get_lines,
    post_stop,
    post_resume,
    post_take_over,
    post_undo,
    delete_replay,
]
