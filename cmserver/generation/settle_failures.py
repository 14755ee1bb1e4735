"""Closes failures on record by what turns of other sessions did.

A failure is done with the first later turn by which the same check passes, and dropped for a later failure of that check on record.
It is found out anew whenever such a check ran, so that it does not matter which session a worker comes by first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.generation.prompt import command_results
from cmserver.observations import repository as observations
from cmserver.observations.model import RecordedFailure, StateByTurn
from cmserver.reading.model import CommandResult
from cmserver.rules.failures import FollowedFailures, takes_in
from cmserver.sessions.ledger import repository as ledger
from cmserver.sessions.ledger.model import TurnRuns
from cmserver.sessions.ledger.record import program_of

_MAX_TURNS = 200
_MAX_OPEN = 50

_Order = tuple[datetime, int]


class _Failure(msgspec.Struct, frozen=True):
    row: RecordedFailure
    failed: list[CommandResult]

    def replaces(self, other: _Failure) -> bool:
        """Whether it is about the check that another session's failure is about and no other, and has tried all of it."""
        if self.row.server_session_id == other.row.server_session_id:
            return False
        return any(all(it.command == new.command and takes_in(new, it) for it in other.failed) for new in self.failed)


async def settle_failures(conn: Conn, team_id: UUID, project_id: UUID, programs: Collection[str]) -> None:
    """Close the project's failures of these programs' checks as their turns say by now, or open them again."""
    turns = await ledger.runs(conn, team_id, project_id, programs, _MAX_TURNS)
    rows = await observations.failures(
        conn, team_id, project_id, {turn.server_session_id for turn in turns}, {turn.number for turn in turns}, _MAX_OPEN
    )
    rows = [row for row in rows if not _programs(_failed(row)).isdisjoint(programs)]
    # What failed in several programs is over by all of them, and where one has run first, its name is that of the run.
    needed = _programs(it for row in rows for it in command_results(row.metadata)).union(programs)
    if needed > set(programs):
        turns = await ledger.runs(conn, team_id, project_id, needed, _MAX_TURNS)
    if changed := await asyncio.to_thread(find_states, turns, rows):
        await observations.set_states(conn, team_id, project_id, changed)


def _failed(row: RecordedFailure) -> list[CommandResult]:
    return [it for it in command_results(row.metadata) if not it.passed]


def _programs(results: Iterable[CommandResult]) -> set[str]:
    return set(map(program_of, results))


def find_states(turns: Sequence[TurnRuns], rows: Sequence[RecordedFailure]) -> list[StateByTurn]:
    """The states of those of the failures that have another one now. The turns are in their order.

    What a turn has closed that is not among them stays as it is.
    """
    results: dict[_Order, list[CommandResult]] = {}
    for turn in turns:
        results.setdefault((turn.created_at, turn.number), []).extend(it for run in turn.runs for it in run.results)
    failures: dict[_Order, list[_Failure]] = {}
    for row in sorted(rows, key=lambda row: row.number):
        if failed := _failed(row):
            failures.setdefault((row.asked_at, row.turn_number), []).append(_Failure(row, failed))
    states: list[StateByTurn] = []
    numbers = {None, *(turn.number for turn in turns)}
    waiting: list[tuple[_Failure, FollowedFailures]] = []
    for place in sorted({*results, *failures}):
        new, ran = failures.get(place, []), place in results
        for _, followed in waiting:
            for result in results.get(place, ()):
                followed.add(result)
        still: list[tuple[_Failure, FollowedFailures]] = []
        for failure, followed in waiting:
            is_over = ran and followed.is_over
            if is_over or any(it.replaces(failure) for it in new):
                states.append(StateByTurn(number=failure.row.number, state="done" if is_over else "dropped", closed_by=place[1]))
            else:
                still.append((failure, followed))
        waiting = still
        waiting += [(it, FollowedFailures(it.failed)) for it in new if it.row.may_change and it.row.closed_by in numbers]
    states += [StateByTurn(number=it.row.number, state="open", closed_by=None) for it, _ in waiting]
    before = {row.number: (row.state, row.closed_by) for row in rows}
    return [it for it in states if before[it.number] != (it.state, it.closed_by)]
