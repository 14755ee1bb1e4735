"""Failures on record are over by what turns of other sessions did, whichever a worker came by first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec
import pytest

from cmserver.access.model import Project
from cmserver.base.db import Db
from cmserver.generation.settle_failures import find_states, settle_failures
from cmserver.observations.model import ObservationState, RecordedFailure
from cmserver.reading.model import CommandResult
from cmserver.rules.failures import is_same_check
from cmserver.sessions.ledger.model import CheckRun, TurnRuns, TurnTraces
from cmserver.sessions.ledger.record import note_turn
from cmserver.sessions.turns.model import SessionTurn
from tests.conftest import Cast
from tests.make import Make
from tests.table import try_rows

START = datetime(2026, 11, 1, tzinfo=UTC)
SESSIONS = {name: UUID(int=place) for place, name in enumerate("abc")}


def check(*, passed: bool, command: str = "pytest", selectors: tuple[str, ...] = ()) -> CommandResult:
    return CommandResult(command=command, kind="check", passed=passed, selectors=list(selectors), folder="")


def turn(session: str, number: int, *results: CommandResult) -> TurnRuns:
    """The turn of that number, which is also its day."""
    return TurnRuns(
        number=number,
        created_at=START + timedelta(days=number),
        server_session_id=SESSIONS[session],
        results=[msgspec.to_builtins(CheckRun(text="pytest", results=list(results)))],
    )


def failure(
    session: str,
    at: int,
    *results: CommandResult,
    state: ObservationState = "open",
    closed_by: int | None = None,
    may_change: bool = True,
) -> RecordedFailure:
    """A failure on record of that turn, whose number is a hundred higher."""
    return RecordedFailure(
        number=100 + at,
        state=state,
        closed_by=closed_by,
        server_session_id=SESSIONS[session],
        turn_number=at,
        asked_at=START + timedelta(days=at),
        metadata={"commands": msgspec.to_builtins(list(results or [FAILS]))},
        may_change=may_change,
    )


PASSES, FAILS = check(passed=True), check(passed=False)
OF_A = check(passed=True, selectors=("tests/a.py",))
OF_B_FAILS = check(passed=False, selectors=("tests/b.py",))
STATE = tuple[int, Literal["open", "done", "dropped"], int | None]


@try_rows(
    ("turns", "rows", "changed"),
    [
        ([turn("a", 1, FAILS), turn("b", 2, PASSES)], [failure("a", 1)], [(101, "done", 2)]),
        ([turn("b", 1, PASSES), turn("a", 2, FAILS)], [failure("a", 2)], []),
        ([turn("a", 1, FAILS), turn("b", 2, OF_A)], [failure("a", 1)], []),
        ([turn("a", 1, FAILS), turn("b", 2, check(passed=True, command="vitest"))], [failure("a", 1)], []),
        ([turn("a", 1, FAILS), turn("b", 2, FAILS)], [failure("a", 1), failure("b", 2)], [(101, "dropped", 2)]),
        ([turn("a", 1, FAILS), turn("b", 2, OF_B_FAILS)], [failure("a", 1), failure("b", 2, OF_B_FAILS)], []),
        ([turn("a", 1, OF_B_FAILS), turn("b", 2, FAILS)], [failure("a", 1, OF_B_FAILS), failure("b", 2)], [(101, "dropped", 2)]),
        (
            [turn("a", 1, FAILS), turn("b", 2, FAILS), turn("c", 3, PASSES)],
            [failure("a", 1), failure("b", 2)],
            [(101, "dropped", 2), (102, "done", 3)],
        ),
        ([turn("a", 1, FAILS), turn("a", 2, FAILS)], [failure("a", 1), failure("a", 2)], []),
        ([turn("a", 1, FAILS), turn("b", 2, FAILS, PASSES)], [failure("a", 1)], [(101, "done", 2)]),
        # What comes late: an earlier pass, an earlier failure, a failure between.
        (
            [turn("a", 1, FAILS), turn("c", 2, PASSES), turn("b", 3, PASSES)],
            [failure("a", 1, state="done", closed_by=3)],
            [(101, "done", 2)],
        ),
        ([turn("a", 1, FAILS), turn("b", 3, PASSES)], [failure("a", 1)], [(101, "done", 3)]),
        (
            [turn("a", 1, FAILS), turn("c", 2, FAILS), turn("b", 3, PASSES)],
            [failure("a", 1, state="done", closed_by=3), failure("c", 2)],
            [(101, "dropped", 2), (102, "done", 3)],
        ),
        ([turn("a", 1, FAILS), turn("b", 3, PASSES, FAILS)], [failure("a", 1, state="done", closed_by=3)], [(101, "open", None)]),
        # By a turn of which nothing is known here.
        ([turn("a", 1, FAILS), turn("b", 2, PASSES)], [failure("a", 1, state="done", closed_by=3)], []),
        # A person, or its own session, has said that it is over, or that it is not.
        ([turn("a", 1, FAILS), turn("b", 2, PASSES)], [failure("a", 1, state="dropped", closed_by=90, may_change=False)], []),
        ([turn("a", 1, FAILS), turn("b", 2, PASSES)], [failure("a", 1, may_change=False)], []),
        # It is as it should be.
        ([turn("a", 1, FAILS), turn("b", 2, PASSES)], [failure("a", 1, state="done", closed_by=2)], []),
    ],
)
def test_a_failure_is_over_by_the_first_later_turn_that_shows_it(
    turns: list[TurnRuns], rows: list[RecordedFailure], changed: list[STATE]
):
    assert [(it.number, it.state, it.closed_by) for it in find_states(turns, rows)] == changed


@try_rows(
    ("failed", "passes", "state"),
    [
        (["pytest"], [["pytest"]], "done"),
        # What another program's turn has closed stays closed, whatever else its turns ran.
        (["cargo test"], [["cargo test"], ["pytest"]], "done"),
        (["cargo test"], [["cargo test", "pytest"], ["pytest"]], "done"),
        # What failed in two programs is over by both, whether a worker comes by once or twice.
        (["cargo test", "pytest"], [["cargo test"]], "open"),
        (["cargo test", "pytest"], [["cargo test", "pytest"]], "done"),
        (["cargo test", "pytest"], [["cargo test"], ["pytest"]], "done"),
    ],
)
async def test_a_failure_is_settled_by_all_of_its_programs_and_by_no_other(
    db: Db, cast: Cast, make: Make, failed: list[str], passes: list[list[str]], state: str
):
    project = cast.alice.project
    first = await note(db, make, project, "a", [check(passed=it not in failed, command=it) for it in ["cargo test", "pytest"]])
    results = msgspec.to_builtins([check(passed=False, command=it) for it in failed])
    row = await make.observation(project=project, metadata={"commands": results}, server_session_id=first.server_session_id)
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET state = 'open', turn_number = %s WHERE id = %s", [first.number, row.id])

    for place, commands in enumerate(passes):
        await note(db, make, project, f"b{place}", [check(passed=True, command=it) for it in commands])
        async with db.system() as conn:
            await settle_failures(conn, project.team_id, project.id, {it.partition(" ")[0] for it in commands})

    async with db.system() as conn:
        (found,) = await (await conn.execute("SELECT state FROM observations WHERE id = %s", [row.id])).fetchall()
    assert found == (state,)


async def note(db: Db, make: Make, project: Project, session: str, results: list[CommandResult]) -> SessionTurn:
    """A turn of the session that ran these, each as a command of its own."""
    made = await make.turn(project=project, session=session)
    assert made.prompt_number is not None
    traces = TurnTraces(checks=[CheckRun(text=it.command, results=[it]) for it in results])
    async with db.system() as conn:
        await note_turn(conn, project.team_id, made.server_session_id, made.prompt_number, traces)
    return made


def test_twice_as_many_turns_cost_twice_as_many_comparisons(monkeypatch: pytest.MonkeyPatch):
    compared: list[bool] = []

    def count(passed: CommandResult, failed: CommandResult) -> bool:
        compared.append(is_same_check(passed, failed))
        return compared[-1]

    monkeypatch.setattr("cmserver.rules.failures.is_same_check", count)
    costs: list[int] = []
    for turns in (20, 40):
        runs = [turn("b", at, check(passed=True, selectors=(f"tests/{at}.py",))) for at in range(2, turns + 2)]
        assert not find_states([turn("a", 1, FAILS), *runs], [failure("a", 1)])
        costs.append(len(compared) - sum(costs))

    assert 0 < costs[1] <= 2.1 * costs[0]
