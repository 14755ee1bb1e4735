"""What was done in a turn, read from the events of a batch: files that were changed, checks, commits, and what is over with it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.base.text import shorten
from cmserver.generation.model import ClaimedJob
from cmserver.reading.edit_lines import FileLines, read_edit_lines
from cmserver.reading.model import CommandRun, EventReading, FileEdit
from cmserver.reading.work_tree import WorkTree, find_commit
from cmserver.sessions.ledger.model import CheckRun, EarlierUndo, TurnTraces
from cmserver.sessions.ledger.record import note_runs, note_turn, program_of
from cmserver.sessions.turns import repository as turns
from cmserver.tooluse.model import Purpose, is_absolute
from cmserver.tooluse.places import ALL_BELOW, join
from cmserver.tooluse.taking_back import read_takings

_MAX_ITEMS = 100
_MAX_ITEM_CHARS = 300
_MAX_PLACE_CHARS = 60


class TurnWork(msgspec.Struct, kw_only=True):
    """Paths, checks with how they ended, commands that committed, and what the ledger needs of them."""

    files: set[str] = msgspec.field(default_factory=set[str])
    checks: list[str] = msgspec.field(default_factory=list[str])
    commits: list[str] = msgspec.field(default_factory=list[str])
    traces: TurnTraces = msgspec.field(default_factory=TurnTraces)


async def add_turn_work(
    conn: Conn, jobs: Sequence[ClaimedJob], readings: Mapping[UUID, EventReading], *, is_replay: bool = False
) -> set[str]:
    """Add what the jobs' events did to their turns; returns the programs of the checks that they ran.

    Call it once for each job, in the transaction that ends it.
    """
    programs: set[str] = set()
    for (team_id, session_id, prompt_number), events in _group_by_turn(jobs, readings).items():
        work = read_work(events)
        await add_work(conn, team_id, session_id, prompt_number, work, is_replay=is_replay)
        programs |= {program_of(result) for check in work.traces.checks for result in check.results}
    return programs


async def add_work(
    conn: Conn,
    team_id: UUID,
    session_id: UUID,
    prompt_number: int,
    work: TurnWork,
    *,
    only_traces: bool = False,
    is_replay: bool = False,
) -> None:
    """Add to the turn what events of it did, or only what the ledger needs of them; in a replay of that only how checks ended."""
    if not only_traces and (work.files or work.checks or work.commits):
        await turns.add_work(
            conn,
            team_id,
            session_id,
            prompt_number,
            files=work.files,
            checks=work.checks,
            commits=work.commits,
            max_items=_MAX_ITEMS,
        )
    if is_replay:
        await note_runs(conn, team_id, session_id, prompt_number, work.traces.checks)
    elif not work.traces.is_empty:
        await note_turn(conn, team_id, session_id, prompt_number, work.traces)


def _group_by_turn(
    jobs: Sequence[ClaimedJob], readings: Mapping[UUID, EventReading]
) -> dict[tuple[UUID, UUID, int], list[EventReading]]:
    """The events by team, session and number of the prompt, in order."""
    by_turn: dict[tuple[UUID, UUID, int], list[EventReading]] = {}
    for job in sorted(jobs, key=lambda job: job.seq):
        if job.id in readings and job.server_session_id is not None and job.prompt_number is not None:
            by_turn.setdefault((job.team_id, job.server_session_id, job.prompt_number), []).append(readings[job.id])
    return by_turn


def read_work(events: Sequence[EventReading]) -> TurnWork:
    """What the events of a turn did: of edits only those that are still there after what git took back."""
    work, tree = TurnWork(), WorkTree()
    lines: dict[tuple[Hashable, str], FileLines] = {}
    gone: set[tuple[Hashable, str]] = set()
    for place, event in enumerate(events):
        was_stashed = tree.stashed
        effect = tree.take(place, event.act)
        gone = (gone | {(edit.event, edit.path) for edit in effect.gone}) - {(edit.event, edit.path) for edit in effect.back}
        if isinstance(event.act, FileEdit):
            known = {it.path: it for it in read_edit_lines(event)}
            for change in event.act.changes:
                lines[place, change.path] = known.get(change.path) or FileLines(path=change.path)
                work.traces.loose.add(change.path)
        elif isinstance(event.act, CommandRun):
            _add_run(work, event.act, without_changes=(was_stashed and tree.stashed) or _compares(event.act))
    _add_edits(work, [it for key, it in lines.items() if key not in gone])
    return work


def _add_edits(work: TurnWork, edits: Sequence[FileLines]) -> None:
    traces = work.traces
    for lines in edits:
        work.files.add(lines.path[:_MAX_ITEM_CHARS])
        if lines.places:
            traces.edits.setdefault(lines.path, []).extend(lines.places)
        if lines.is_removed:
            traces.removed.add(lines.path)
        if lines.old_path and lines.old_path != lines.path:
            traces.moved.append((lines.old_path, lines.path))


def _add_run(work: TurnWork, run: CommandRun, *, without_changes: bool) -> None:
    text, failure = shorten(run.command.text, _MAX_ITEM_CHARS), run.outcome.failure
    if run.command.is_check:
        text += _say_place(run.result.folder or "", text)
    if run.command.is_check and (run.outcome.failed or run.is_proved):
        ended = f"failed ({shorten(failure, 100)})" if failure else "failed" if run.outcome.failed else "passed"
        work.checks.append(f"{text}: {ended}")
    elif run.command.main.purpose is Purpose.COMMIT and not run.outcome.failed:
        work.commits.append(text)
    checks = [result for result in run.known_results if result.kind == "check"]
    if checks and not without_changes:  # which say nothing of the project as it is
        work.traces.checks.append(CheckRun(text=text, results=checks))
    if not run.outcome.failed:
        _add_takings(work.traces, run)


def _compares(run: CommandRun) -> bool:
    """Whether its check runs while changes are put away; `git stash pop && pytest` brings back those of before."""
    return run.command.compares and all(taking.verb != "pops" for _, taking in read_takings(run.command))


def _say_place(folder: str, text: str) -> str:
    """Where a check ran, unless it was at the root or its text says it: the same words in another folder are another check."""
    place = folder.removesuffix(ALL_BELOW).removeprefix("*/").rstrip("/")
    name = place.rpartition("/")[2]
    return f" in {shorten(name if is_absolute(place) else place, _MAX_PLACE_CHARS)}" if name and name not in text else ""


def _add_takings(traces: TurnTraces, run: CommandRun) -> None:
    """What git may have done to edits of earlier turns. What a commit of this turn has kept stays."""
    for command, taking in read_takings(run.command):
        if taking.verb == "commits":
            traces.commits.append(find_commit(run.outcome.output))
            traces.loose.clear()
        elif taking.verb != "adds" and taking.tracked and (taking.verb == "reverts" or not traces.commits):
            paths = [run.folder.relative(join(command.place.folder, path)) if path else "" for path in taking.paths]
            traces.taken.append(EarlierUndo(verb=taking.verb, paths=paths, commit=taking.commit))
