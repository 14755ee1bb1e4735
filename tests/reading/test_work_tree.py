"""Which edits are still there after what git took back, put away and brought back."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.reading.model import EventReading
from cmserver.reading.work_tree import WorkTree
from tests.reading.events import ROOT
from tests.rules.offline import edit, failed_run, observe, run, tool_use
from tests.table import try_rows

EDITS = ("src/a.py", "src/b.py", "docs/c.md")


def new(path: str) -> EventReading:
    return tool_use("Write", {"file_path": f"{ROOT}/{path}", "content": "x = 1\n"}, {"type": "create"})


def left(events: Sequence[EventReading]) -> set[str]:
    """The paths whose edits are there after all of the events."""
    tree, there = WorkTree(), list[tuple[int, str]]()
    for place, event in enumerate(events):
        effect = tree.take(place, event.act)
        there += [(place, path) for path in event.changed_files]
        there = [it for it in there if it not in {(edit.event, edit.path) for edit in effect.gone}]
        there += [(edit.event, edit.path) for edit in effect.back if isinstance(edit.event, int)]
    return {path for _, path in there}


@try_rows(
    ("commands", "kept"),
    [
        (["git checkout -- src/a.py"], {"src/b.py", "docs/c.md"}),
        (["git checkout HEAD -- src"], {"docs/c.md"}),
        (["git checkout ."], set[str]()),
        (["git checkout -f main"], set[str]()),
        (["git checkout main"], {*EDITS}),
        (["git checkout -b fix"], {*EDITS}),
        (["git switch --discard-changes main"], set[str]()),
        (["git restore src/a.py src/b.py"], {"docs/c.md"}),
        (["git restore --staged ."], {*EDITS}),
        (["git restore --staged --worktree ."], set[str]()),
        (["cd src && git restore ."], {*EDITS} - {"src/a.py", "src/b.py"}),
        (["git -C src checkout -- a.py"], {"src/b.py", "docs/c.md"}),
        (["git reset --hard"], set[str]()),
        (["git reset --hard HEAD && git status"], set[str]()),
        (["git reset --soft HEAD~1"], {*EDITS}),
        (["git reset src/a.py"], {*EDITS}),
        (["git stash"], set[str]()),
        (["git stash push -m wip -- src/a.py"], {"src/b.py", "docs/c.md"}),
        (["git stash", "git stash pop"], {*EDITS}),
        (["git stash && npm test; git stash pop"], {*EDITS}),
        (["git stash", "git stash apply"], {*EDITS}),
        (["git stash", "git stash drop"], set[str]()),
        (["git stash list"], {*EDITS}),
        (["git clean -fd"], {*EDITS}),
        (["git commit -am x", "git reset --hard"], {*EDITS}),
        (["git commit -am x", "git reset --hard HEAD~1"], set[str]()),
        (["git commit -am x", "git revert --no-edit HEAD"], set[str]()),
        (["git revert --no-edit HEAD"], {*EDITS}),
        (["hg revert --all"], set[str]()),
        (["svn revert src/a.py"], {"src/b.py", "docs/c.md"}),
        (["bash -c 'git checkout -- src/a.py'"], {"src/b.py", "docs/c.md"}),
        (["git checkout -p src/a.py"], {*EDITS}),
        (["echo git reset --hard"], {*EDITS}),
    ],
)
def test_what_is_taken_back_is_gone_and_nothing_else(commands: list[str], kept: set[str]):
    assert left([*map(edit, EDITS), *map(run, commands)]) == kept


@try_rows(
    ("commands", "is_kept"),
    [
        (["git reset --hard"], True),
        (["git stash"], True),
        (["git checkout ."], True),
        (["git add -A && git reset --hard"], False),
        (["git add new.py", "git stash"], False),
        (["git stash -u"], False),
        (["git stash --include-untracked", "git stash pop"], True),
        (["git clean -fd"], False),
        (["git clean -n"], True),
        (["git clean -fd src"], True),
        (["git add . && git clean -fd"], True),
    ],
)
def test_a_new_file_is_taken_back_by_other_commands(commands: list[str], is_kept: bool):
    assert left([new("new.py"), *map(run, commands)]) == ({"new.py"} if is_kept else set())


def test_what_failed_or_had_nothing_to_do_takes_nothing_back():
    assert left([edit("a.py"), failed_run("git checkout -- a.py", "error: pathspec")]) == {"a.py"}
    assert left([edit("a.py"), run("git stash", "No local changes to save")]) == {"a.py"}


async def _titles(*events: EventReading) -> list[tuple[str | None, str | None]]:
    return [(draft.title, draft.state) for draft in (await observe(*events)).observations]


FAILS = failed_run("npm test", "FAIL src/cart.test.ts > adds tax\nTests:       1 failed, 1 total")
PASSES = run("npm test", "Tests:       1 passed, 1 total")


async def test_what_was_put_away_and_came_back_is_told_and_what_did_not_is_not():
    back = await _titles(edit("a.py"), run("git stash"), run("git stash pop"))
    gone = await _titles(edit("a.py"), edit("b.py"), run("git stash push a.py"))

    assert [title for title, _ in back] == ["Changed a in a.py: `return 1` → `return 2`"]
    assert [title for title, _ in gone] == ["Changed a in b.py: `return 1` → `return 2`"]


async def test_a_failure_whose_repair_was_taken_back_is_open_again():
    assert await _titles(FAILS, edit("src/cart.ts"), PASSES, run("git reset --hard")) == [
        ("adds tax fails: Tests: 1 failed, 1 total", "open")
    ]


async def test_a_run_without_the_changes_says_nothing_of_them():
    titles = await _titles(edit("src/cart.ts"), FAILS, run("git stash"), PASSES, run("git stash pop"))

    assert [state for _, state in titles if state] == ["open"]


async def test_a_commit_that_was_taken_back_is_not_told():
    assert await _titles(edit("a.py"), run("git commit -am x", "[main 3f9c2ab] x"), run("git reset --hard HEAD~1")) == []
