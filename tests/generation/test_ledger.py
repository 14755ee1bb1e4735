"""What of an earlier turn is over by a later one: by edits, by git, by checks that pass; in whatever order turns are noted."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.access.model import Project
from cmserver.base.db import Db
from cmserver.generation.turn_work import read_work
from cmserver.reading.edit_tokens import find_tokens
from cmserver.reading.model import EventReading
from cmserver.sessions.ledger import repository
from cmserver.sessions.ledger.record import note_turn
from cmserver.sessions.turns.model import SessionTurn
from tests.conftest import Cast
from tests.make import Make
from tests.reading.events import ROOT
from tests.rules.offline import edit, failed_run, run, tool_use
from tests.table import try_rows

ROWS = "src/rows.py"
TO_2000, TO_5000, TO_9000 = (
    edit(ROWS, f"MAX_ROWS = {old}", f"MAX_ROWS = {new}") for old, new in ((500, 2000), (2000, 5000), (5000, 9000))
)
SAID = "I set MAX_ROWS to 2000."
FAILS = failed_run("npm test", "FAIL src/a.test.ts > adds\n Tests  1 failed (1)")
PASSES = run("npm test", " Tests  1 passed (1)")


class Ledger:
    """Turns of a project, and what is over of them."""

    def __init__(self, db: Db, project: Project, make: Make) -> None:
        self._db, self._project, self._make = db, project, make

    async def play(self, events: Sequence[Sequence[EventReading]], session: str, *, backwards: bool = False) -> list[SessionTurn]:
        """A turn of the session for each list of events, noted in order or backwards."""
        turns = [await self._make.turn(project=self._project, session=session) for _ in events]
        pairs = list(zip(turns, events, strict=True))
        for turn, done in reversed(pairs) if backwards else pairs:
            await self.note(turn, done)
        return turns

    async def note(self, turn: SessionTurn, events: Sequence[EventReading]) -> None:
        """What events of a turn did, beside what is noted of it."""
        assert turn.prompt_number is not None
        async with self._db.system() as conn:
            traces = read_work(events).traces
            await note_turn(conn, self._project.team_id, turn.server_session_id, turn.prompt_number, traces)

    async def over(self, turns: Sequence[SessionTurn], said: str = SAID) -> list[tuple[int, int]]:
        """Which of the turns is over by which one, where it had said that, counted from 0."""
        places = {turn.id: place for place, turn in enumerate(turns)}
        async with self._db.tenant(self._project.team_id) as conn:
            entries = await repository.of_turns(conn, self._project.team_id, [turn.number for turn in turns])
        tokens = {*find_tokens(said), 0}
        return sorted({(places[entry.earlier_id], places[entry.later_id]) for entry in entries if entry.token in tokens})


def remove(path: str) -> EventReading:
    return run(f"git rm {path}")


def patch(text: str) -> EventReading:
    return tool_use("apply_patch", {"input": f"*** Begin Patch\n{text}\n*** End Patch"})


@try_rows(
    ("events", "over"),
    [
        ([[TO_2000], [TO_5000]], [(0, 1)]),
        ([[TO_2000], [], [TO_5000]], [(0, 2)]),
        ([[TO_2000], [edit("src/other.py", "MAX_ROWS = 2000", "MAX_ROWS = 5000")]], []),
        ([[TO_2000, TO_5000]], []),
        ([[TO_2000], [TO_5000, edit(ROWS, "MAX_ROWS = 5000", "MAX_ROWS = 2000")]], []),
        ([[TO_2000], [TO_5000], [edit(ROWS, "MAX_ROWS = 5000", "MAX_ROWS = 2000")]], []),
        ([[TO_2000], [edit(ROWS, "MAX_ROWS = 2000", "limits.load()"), edit("src/limits.py", "", "MAX_ROWS = 2000")]], []),
        (
            [[TO_2000], [run(f"git mv {ROWS} src/limits.py")], [edit("src/limits.py", "MAX_ROWS = 2000", "MAX_ROWS = 5000")]],
            [(0, 2)],
        ),
        ([[TO_2000], [remove(ROWS)]], [(0, 1)]),
        ([[TO_2000], [run("git checkout -- src")]], [(0, 1)]),
        ([[TO_2000], [run("git checkout -- docs")]], []),
        ([[TO_2000], [run("git reset --hard", "HEAD is now at 1a2b3c4 init")]], [(0, 1)]),
        ([[TO_2000, run("git commit -am x", "[main 3f9c2ab] x")], [run("git reset --hard")]], []),
        ([[TO_2000, run("git commit -am x", "[main 3f9c2ab] x")], [run("git reset --hard HEAD~1")]], [(0, 1)]),
        ([[TO_2000], [run("git commit -am x", "[main 3f9c2ab] x")], [run("git revert --no-edit HEAD")]], [(0, 2)]),
        ([[TO_2000], [run("git commit -am x", "[main 3f9c2ab] x")], [run("git revert 3f9c2abd1")]], [(0, 2)]),
        ([[TO_2000], [run("git commit -am x", "[main 3f9c2ab] x")], [run("git revert aaaaaaaaa")]], []),
        ([[TO_2000], [run("git stash")]], [(0, 1)]),
        ([[TO_2000], [run("git stash")], [run("git stash pop")]], []),
        ([[TO_2000, run("git checkout -- src/rows.py")], [TO_5000]], []),
        ([[TO_2000], [run("sed -i 's/2000/5000/' src/rows.py")]], [(0, 1)]),
        ([[TO_2000], [patch(f"*** Update File: {ROWS}\n@@\n-MAX_ROWS = 2000\n+MAX_ROWS = 5000")]], [(0, 1)]),
        ([[patch(f"*** Add File: {ROWS}\n+MAX_ROWS = 2000")], [patch(f"*** Delete File: {ROWS}")]], [(0, 1)]),
        (
            [
                [tool_use("Write", {"file_path": f"{ROOT}/{ROWS}", "content": "MAX_ROWS = 2000\n"}, {"type": "create"})],
                [tool_use("Write", {"file_path": f"{ROOT}/{ROWS}", "content": "MAX = 1\n"}, {"originalFile": "MAX_ROWS = 2000\n"})],
            ],
            [(0, 1)],
        ),
        ([[TO_2000, edit("b.py", "LIMIT = 1", "LIMIT = 2000")], [TO_5000]], []),
        ([[TO_2000, edit("b.py", "LIMIT = 1", "LIMIT = 2000")], [TO_5000, edit("b.py", "LIMIT = 2000", "LIMIT = 1")]], [(0, 1)]),
    ],
)
async def test_what_an_edit_had_put_in_is_over_when_it_is_taken_out(
    db: Db, cast: Cast, make: Make, events: list[list[EventReading]], over: list[tuple[int, int]]
):
    ledger = Ledger(db, cast.alice.project, make)
    async with db.system() as conn:
        await conn.execute("DELETE FROM turns")

    assert await ledger.over(await ledger.play(events, "s")) == over


@try_rows(
    ("events", "over"),
    [
        ([[FAILS], [PASSES]], [(0, 1)]),
        ([[FAILS, PASSES], [PASSES]], []),
        ([[FAILS], [FAILS], [PASSES]], [(0, 2), (1, 2)]),
        ([[FAILS], [PASSES], [FAILS]], [(0, 1)]),
        ([[FAILS], [run("cd web && npm test", " Tests  1 passed (1)")]], []),
        ([[FAILS], [run("npm test", " Tests  12 skipped (12)")]], []),
        ([[FAILS], [run("npm test || true")]], []),
        ([[FAILS], [run("git stash"), PASSES, run("git stash pop")]], []),
        ([[FAILS], [run("git stash && npm test && git stash pop", " Tests  1 passed (1)")]], []),
        ([[FAILS], [run("git stash"), run("git stash pop && npm test", " Tests  1 passed (1)")]], [(0, 1)]),
        ([[FAILS], [run("npm test && git stash", " Tests  1 passed (1)")]], [(0, 1)]),
        ([[FAILS], [run("npm run lint && npm test && git commit -m x", "[main 3f9c2ab] x")]], [(0, 1)]),
        ([[failed_run("pytest", "FAILED a.py::t - E\nFAILED b.py::t - E")], [run("pytest a.py")], [run("pytest b.py")]], [(0, 2)]),
        ([[failed_run("cargo check", "error: x")], [run("cargo test", "test result: ok. 3 passed; 0 failed")]], [(0, 1)]),
        (
            [[FAILS, run("cargo test", "test result: ok. 4 passed")], [PASSES], [run("cargo test", "test result: ok. 4 passed")]],
            [(0, 1)],
        ),
    ],
)
async def test_a_check_that_failed_is_over_when_it_passes(
    db: Db, cast: Cast, make: Make, events: list[list[EventReading]], over: list[tuple[int, int]]
):
    ledger = Ledger(db, cast.alice.project, make)
    async with db.system() as conn:
        await conn.execute("DELETE FROM turns")

    assert await ledger.over(await ledger.play(events, "s")) == over


def test_a_check_of_another_folder_is_told_as_another_one_and_one_of_unknown_end_is_not_told():
    events = [
        failed_run("cd packages/api && npm test", " Tests  1 failed (1)"),
        run("cd packages/web && npm test", " Tests  1 passed (1)"),
        run("npm --prefix docs test"),
        run("npm test || true"),
    ]

    assert read_work(events).checks == [
        "npm test in packages/api: failed (Tests 1 failed (1))",
        "npm test in packages/web: passed",
        "npm --prefix docs test: passed",
    ]


def test_what_was_taken_back_in_the_same_turn_is_no_file_of_it():
    assert read_work([TO_2000, edit("b.py"), run("git checkout -- src")]).files == {"b.py"}


async def test_the_order_in_which_turns_are_noted_changes_nothing(db: Db, cast: Cast, make: Make):
    ledger = Ledger(db, cast.alice.project, make)

    turns = await ledger.play([[TO_2000, FAILS], [TO_5000], [TO_9000, PASSES]], "s", backwards=True)

    assert await ledger.over(turns) == [(0, 1), (0, 2)]
    assert await ledger.over(turns, "5000") == [(0, 2), (1, 2)]


async def test_what_went_with_its_file_is_over_whichever_turn_is_noted_first(db: Db, cast: Cast, make: Make):
    ledger = Ledger(db, cast.alice.project, make)

    turns = await ledger.play([[TO_2000], [remove(ROWS)], [edit(ROWS, "", "MAX_ROWS = 9000")]], "s", backwards=True)

    assert await ledger.over(turns) == [(0, 1)]
    assert await ledger.over(turns, "9000") == []


async def test_what_gets_the_old_name_of_a_file_later_is_another_file(db: Db, cast: Cast, make: Make):
    ledger = Ledger(db, cast.alice.project, make)
    limits = "src/limits.py"
    events = [
        [edit(limits, "", "MAX_ROWS = 2000")],
        [run(f"git mv -f {ROWS} {limits}")],
        [edit(ROWS, "", "MAX_ROWS = 2000")],
        [edit(limits, "MAX_ROWS = 2000", "MAX_ROWS = 5000")],
    ]

    turns = await ledger.play(events, "s", backwards=True)

    assert await ledger.over(turns) == [(0, 3)]


async def test_a_commit_does_not_have_what_its_turn_edits_later(db: Db, cast: Cast, make: Make):
    ledger = Ledger(db, cast.alice.project, make)
    turns = await ledger.play([[edit(ROWS, "LIMIT = 1", "LIMIT = 3"), run("git commit -am x", "[main 3f9c2ab] x")], []], "s")

    await ledger.note(turns[0], [TO_2000])
    await ledger.note(turns[1], [run("git checkout -- src")])

    assert await ledger.over(turns) == [(0, 1)]


async def test_other_sessions_of_the_project_count_and_other_projects_do_not(db: Db, cast: Cast, make: Make):
    first = await Ledger(db, cast.alice.project, make).play([[TO_2000, FAILS]], "s1")
    later = await Ledger(db, cast.alice.project, make).play([[TO_5000, PASSES]], "s2")
    strangers = await Ledger(db, cast.charlie.project, make).play([[TO_2000, FAILS], [TO_5000]], "s1")

    assert await Ledger(db, cast.alice.project, make).over([*first, *later]) == [(0, 1)]
    assert await Ledger(db, cast.charlie.project, make).over(strangers) == [(0, 1)]


async def test_what_is_deleted_leaves_nothing_behind(db: Db, cast: Cast, make: Make):
    ledger = Ledger(db, cast.alice.project, make)
    turns = await ledger.play([[TO_2000], [TO_5000]], "s")

    async with db.system() as conn:
        await conn.execute("DELETE FROM turns WHERE id = %s", [turns[1].id])
        left = await (
            await conn.execute("SELECT (SELECT count(*) FROM turn_ledger) + (SELECT count(*) FROM turn_traces)")
        ).fetchone()

    assert left == (1,)
    assert await ledger.over(turns) == []
