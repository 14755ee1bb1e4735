"""Notes what a turn did, and what of earlier turns is over with it; or what of it is over by later ones that are known already.

Turns may be noted in any order: what comes of them is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.reading.model import CommandResult, EditedPlace
from cmserver.rules.failures import FollowedFailures
from cmserver.sessions.ledger import repository
from cmserver.sessions.ledger.model import (
    COMMIT_DIGITS,
    CheckRun,
    EarlierUndo,
    NewEntry,
    NewTrace,
    Scope,
    Trace,
    TracedTurn,
    TurnTraces,
    decode_places,
    decode_runs,
    encode_places,
)
from cmserver.tooluse.places import is_below

Places = dict[str, list[EditedPlace]]
"""What was done to each file, place by place."""

_MAX_TOKENS = 500
"""Of one side of a turn's edits: some 4 kB together."""
_MAX_TURNS = 200
"""How many turns that touched a file are compared."""
_MAX_INSTEAD = 8
_MAX_RUNS = 20
_MAX_FAILED = 100
"""How many failures of a program are followed at once."""
_MAX_NAME = 300
_STASH, _REMOVED = "stash", "removed"
"""Marks of an edit: that git put it away, and that the whole file went, with all that turns before had put in."""
_LAST_COMMIT = {"HEAD~", "HEAD~1", "HEAD^", "@~", "@~1", "@^"}
"""Where `git reset --hard` goes that takes back the last commit."""


async def note_turn(conn: Conn, team_id: UUID, session_id: UUID, prompt_number: int, traces: TurnTraces) -> None:
    """Note what events of the turn did. Call it once for each of them."""
    turn = await repository.turn(conn, team_id, session_id, prompt_number)
    if turn is None:
        return
    await repository.lock(conn, turn.project_id)
    for old, new in traces.moved:
        await repository.rename(conn, team_id, turn, old[:_MAX_NAME], new[:_MAX_NAME])
    changed = await _note_edits(conn, team_id, turn, traces)
    for commit in traces.commits:
        await repository.commit(conn, team_id, turn.id, commit, traces.loose)
        if len(commit) >= COMMIT_DIGITS:
            await repository.add_commit(conn, team_id, turn.id, commit[:COMMIT_DIGITS], commit)
    if changed:
        traces_of = _by_name(await repository.of_names(conn, team_id, turn.project_id, "edit", changed, _MAX_TURNS))
        compared = [
            (traces_of[name], tokens | (_tokens_of(traces_of[name]) if _is_removed(turn, traces_of[name]) else set[int]()))
            for name, tokens in changed.items()
            if name in traces_of
        ]
        scopes = [
            Scope(turn_ids=[trace.turn_id for trace in found], name=found[0].name, tokens=sorted(tokens))
            for found, tokens in compared
        ]
        entries = [entry for found, tokens in compared for entry in _compare_edits(found, tokens)]
        await repository.write(conn, team_id, turn.project_id, "edit", scopes, entries)
    checks = _by_program(traces.checks)
    for program in sorted(checks):
        await _put_runs(conn, team_id, turn, program, checks[program])
        await _compare_runs(conn, team_id, turn, program)


async def note_runs(conn: Conn, team_id: UUID, session_id: UUID, prompt_number: int, checks: Sequence[CheckRun]) -> None:
    """Note of the turn only how its checks ended, from which failures are settled, and not what is over with it."""
    turn = await repository.turn(conn, team_id, session_id, prompt_number) if checks else None
    if turn is not None:
        for program, of_program in _by_program(checks).items():
            await _put_runs(conn, team_id, turn, program, of_program)


def _by_program(checks: Sequence[CheckRun]) -> dict[str, list[CheckRun]]:
    by_program: dict[str, list[CheckRun]] = {}
    for check in checks:
        by_program.setdefault(program_of(check.results[0]), []).append(check)
    return by_program


async def _note_edits(conn: Conn, team_id: UUID, turn: TracedTurn, traces: TurnTraces) -> dict[str, set[int]]:
    """Store what the turn did to each file; the tokens that it now puts in or takes out, and those that it did before, by file."""
    if not (traces.edits or traces.removed or traces.taken):
        return {}
    before = {trace.name: trace for trace in await repository.of_turn(conn, team_id, turn.id, "edit")}
    places = {name: decode_places(trace.put_in, trace.took_out) for name, trace in before.items()}
    for name, added in traces.edits.items():
        places.setdefault(name[:_MAX_NAME], []).extend(added)
    removed = {path[:_MAX_NAME] for path in traces.removed}
    places |= {name: places.get(name, []) for name in removed}
    stashed = await _add_taken(conn, team_id, turn, traces, places)
    net = _without_moved({name: _net(found) for name, found in places.items()})
    changed: dict[str, set[int]] = {}
    rows: list[NewTrace] = []
    left = _MAX_TOKENS
    for name, found in net.items():
        put, took = encode_places(found)
        is_room = max(len(put), len(took)) <= left
        put, took = (put, took) if is_room else ([], [])
        left -= max(len(put), len(took))
        marks = {_STASH} if name in stashed else {str(mark) for mark in before[name].results} if name in before else set[str]()
        results: list[object] = [*sorted(marks | {_REMOVED} if name in removed else marks)]
        rows.append(NewTrace(turn_id=turn.id, name=name, put_in=put, took_out=took, results=results))
        old = before.get(name)
        changed[name] = {*put, *took, *(old.put_in if old else ()), *(old.took_out if old else ())} - {0}
    edited = {name[:_MAX_NAME] for name in traces.edits}
    await repository.put(conn, team_id, turn.project_id, "edit", rows, edited)
    return changed


async def _add_taken(conn: Conn, team_id: UUID, turn: TracedTurn, traces: TurnTraces, places: Places) -> set[str]:
    """Add what git took back of earlier turns of the session, or brought back.

    Returns the files of which something was put away.
    """
    stashed: set[str] = set()
    if traces.taken:
        earlier = await repository.of_session(conn, team_id, turn.id, _MAX_TURNS)
        for taken in traces.taken:
            if taken.verb == "pops":
                await _bring_back(conn, team_id, turn, places, earlier)
                continue
            for trace in earlier:
                if _is_taken(trace, taken, earlier):
                    _take_out(places, trace.name, [trace])
                    stashed |= {trace.name} if taken.verb == "stashes" else set()
    return stashed


def _by_name(traces: Iterable[Trace]) -> dict[str, list[Trace]]:
    by_name: dict[str, list[Trace]] = {}
    for trace in traces:
        by_name.setdefault(trace.name, []).append(trace)
    return by_name


def _take_out(places: Places, name: str, traces: Iterable[Trace]) -> None:
    tokens = frozenset(token for trace in traces for token in trace.put_in if token)
    if tokens:
        places.setdefault(name, []).append(EditedPlace(took_out=tokens))


async def _bring_back(conn: Conn, team_id: UUID, turn: TracedTurn, places: Places, earlier: Sequence[Trace]) -> None:
    """Put in again what the newest turn that put something away took out."""
    newest = next((trace.turn_id for trace in earlier if _STASH in trace.results), None)
    back = [trace for trace in earlier if trace.turn_id == newest and _STASH in trace.results]
    for trace in back:
        places.setdefault(trace.name, []).append(EditedPlace(put_in=frozenset(token for token in trace.took_out if token)))
    unmarked = [reshape(trace, NewTrace, results=[mark for mark in trace.results if mark != _STASH]) for trace in back]
    await repository.put(conn, team_id, turn.project_id, "edit", unmarked)


def _is_taken(trace: Trace, taken: EarlierUndo, earlier: Sequence[Trace]) -> bool:
    """Whether git took back what an earlier turn had done to a file."""
    if taken.verb == "reverts" or taken.commit in _LAST_COMMIT:
        last = next((it.commit for it in earlier if it.commit is not None), "")
        wanted = last if taken.commit in {"", "HEAD", "@", *_LAST_COMMIT} else taken.commit
        if wanted and trace.commit is not None and trace.commit.startswith(wanted[:7]):
            return True
    return trace.commit is None and any(is_below(trace.name, path) for path in taken.paths)


def _net(places: Sequence[EditedPlace]) -> list[EditedPlace]:
    """What places of one file come to: what a turn takes out again it has not put in, and what it puts back is not taken out."""
    put: dict[int, int] = {}
    took: dict[int, int] = {}
    for at, place in enumerate(places):
        for token in place.took_out:
            if put.pop(token, None) is None:
                took.setdefault(token, at)
        for token in place.put_in:
            if took.pop(token, None) is None:
                put.setdefault(token, at)
    return [
        EditedPlace(
            frozenset(token for token, where in put.items() if where == at),
            frozenset(token for token, where in took.items() if where == at),
        )
        for at in sorted({*put.values(), *took.values()})
    ]


def _without_moved(files: Places) -> Places:
    """What is taken out of one file and put into another one was only moved."""
    put = {token: name for name, found in files.items() for place in found for token in place.put_in}

    def stays(place: EditedPlace, name: str) -> EditedPlace:
        return EditedPlace(place.put_in, frozenset(token for token in place.took_out if put.get(token, name) == name))

    return {name: [stays(place, name) for place in found] for name, found in files.items()}


def _compare_edits(traces: Sequence[Trace], tokens: set[int]) -> Iterator[NewEntry]:
    """What is over of these tokens in the file whose traces these are, oldest first."""
    history: dict[int, list[tuple[UUID, EditedPlace, bool]]] = {}
    for trace in traces:
        if _REMOVED in trace.results:
            for steps in history.values():
                steps.append((trace.turn_id, EditedPlace(), False))
        for place in decode_places(trace.put_in, trace.took_out):
            for token in tokens & place.took_out:
                history.setdefault(token, []).append((trace.turn_id, place, False))
            for token in tokens & place.put_in:
                history.setdefault(token, []).append((trace.turn_id, place, True))
    for token, steps in history.items():
        if not steps[-1][2]:  # else it is there again
            yield from _find_ends(traces[0].name, token, steps)


def _is_removed(turn: TracedTurn, traces: Sequence[Trace]) -> bool:
    return any(trace.turn_id == turn.id and _REMOVED in trace.results for trace in traces)


def _tokens_of(traces: Sequence[Trace]) -> set[int]:
    return {token for trace in traces for token in trace.put_in} - {0}


def _find_ends(name: str, token: int, steps: Sequence[tuple[UUID, EditedPlace, bool]]) -> Iterator[NewEntry]:
    """For each turn that put the token in the next other turn that took it out."""
    ended = set[UUID]()
    first: tuple[UUID, EditedPlace] | None = None
    other: tuple[UUID, EditedPlace] | None = None  # the next one by another turn than the first
    for turn_id, place, is_put in reversed(steps):
        if not is_put:
            other = other if first is None or first[0] == turn_id else first
            first = turn_id, place
            continue
        later = other if first is not None and first[0] == turn_id else first
        if later is not None and turn_id not in ended:
            ended.add(turn_id)
            instead = sorted(later[1].put_in)[:_MAX_INSTEAD]
            yield NewEntry(earlier_id=turn_id, later_id=later[0], name=name, token=token, instead=instead)


def program_of(result: CommandResult) -> str:
    """The name under which a check is noted; that of its first command where it has several."""
    return result.command.partition(" ")[0][:_MAX_NAME]


async def _put_runs(conn: Conn, team_id: UUID, turn: TracedTurn, program: str, checks: Sequence[CheckRun]) -> None:
    """Store how the turn's checks by that program ended."""
    known = [trace for trace in await repository.of_turn(conn, team_id, turn.id, "check") if trace.name == program]
    runs = [run for trace in known for run in decode_runs(trace.results)]
    results = [msgspec.to_builtins(_without_words(run)) for run in [*runs, *checks][-_MAX_RUNS:]]
    await repository.put(conn, team_id, turn.project_id, "check", [NewTrace(turn_id=turn.id, name=program, results=results)])


async def _compare_runs(conn: Conn, team_id: UUID, turn: TracedTurn, program: str) -> None:
    """Write anew which failures of earlier turns by that program are over."""
    traces = await repository.of_names(conn, team_id, turn.project_id, "check", [program], _MAX_TURNS)
    turn_ids = [trace.turn_id for trace in traces]
    texts = sorted({run.text for trace in traces for run in decode_runs(trace.results)})  # other programs' entries stay
    scopes = [Scope(turn_ids=turn_ids, name=text, tokens=[0]) for text in texts]
    await repository.write(conn, team_id, turn.project_id, "check", scopes, await asyncio.to_thread(_compare_checks, traces))


def _compare_checks(traces: Sequence[Trace]) -> list[NewEntry]:
    """Which failures are over, of the program whose traces these are, oldest first."""
    waiting: list[tuple[UUID, str, FollowedFailures]] = []
    entries: dict[tuple[UUID, str], NewEntry] = {}
    for trace in traces:
        for run in decode_runs(trace.results):
            still: list[tuple[UUID, str, FollowedFailures]] = []
            for earlier_id, text, followed in waiting:
                for result in run.results:
                    followed.add(result)
                if not followed.is_over:
                    still.append((earlier_id, text, followed))
                elif earlier_id != trace.turn_id:
                    entries[earlier_id, text] = NewEntry(earlier_id=earlier_id, later_id=trace.turn_id, name=text)
            if wrong := [result for result in run.results if not result.passed]:
                still.append((trace.turn_id, run.text, FollowedFailures(wrong)))
            waiting = still[-_MAX_FAILED:]
    return list(entries.values())


def _without_words(run: CheckRun) -> CheckRun:
    """The run without what its output says: nobody compares that."""
    return msgspec.structs.replace(run, results=[msgspec.structs.replace(result, failure="") for result in run.results])
