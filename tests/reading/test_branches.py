"""Which branch a session works on, where only git says it."""

from __future__ import annotations

from cmserver.reading.branches import find_branch
from cmserver.reading.model import UNKNOWN_BRANCH, Branch
from cmserver.tooluse.read import read_tool_use
from tests.table import try_rows


def after(command: str, output: str, before: Branch = UNKNOWN_BRANCH) -> Branch:
    return find_branch(read_tool_use("Bash", {"command": command}, {"stdout": output, "stderr": ""}), before)


@try_rows(
    ("command", "output", "branch"),
    [
        ("git switch main", "Switched to branch 'main'\nYour branch is up to date.", Branch("main", is_elsewhere=True)),
        ("git checkout -b fix/a", "Switched to a new branch 'fix/a'", Branch("fix/a")),
        ("git checkout main", "Already on 'main'", Branch("main")),
        ("git status", "On branch feature/x\nnothing to commit", Branch("feature/x")),
        ("git commit -qam x", "[main 3f9c2ab] x\n 1 file changed", Branch("main")),
        ("git branch --show-current", "release/2\n", Branch("release/2")),
        ("git log -1", "commit 3f9c2ab\n\n    On branch x we do y", UNKNOWN_BRANCH),
        ("cat notes.txt", "Switched to branch 'main'", UNKNOWN_BRANCH),
        ("git checkout nope", "error: pathspec 'nope' did not match", UNKNOWN_BRANCH),
    ],
)
def test_git_says_the_branch(command: str, output: str, branch: Branch):
    assert after(command, output) == branch


def test_who_comes_from_a_known_branch_is_not_elsewhere_and_what_the_client_tells_stands():
    assert after("git switch main", "Switched to branch 'main'", Branch("fix")) == Branch("main")
    assert after("git switch main", "Switched to branch 'main'", Branch("fix", is_told=True)) == Branch("fix", is_told=True)
