"""What the code of a clone no longer says is marked: by real repositories, whose git says what the hook client sends."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cmserver.git.clones.follow import apply_commits
from cmserver.git.clones.marks import CodeMarks
from cmserver.git.clones.model import CommittedChange
from cmserver.git.clones.read_log import read_diff, read_log
from tests.repositories import Repository

LOG = (
    "log",
    "--left-right",
    "--topo-order",
    "--reverse",
    "--no-merges",
    "--raw",
    "-z",
    "-M",
    "--format=%m%x00%H%x00%aN%x00%at%x00",
)
NOTED = datetime(2025, 12, 1, tzinfo=UTC)
"""Before all commits."""


class Clone:
    """A clone whose changes are followed as the server does."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.head = repository.git("rev-parse", "HEAD")
        self.changes: dict[str, list[CommittedChange]] = {}

    def start(self, since: int = 0) -> CodeMarks:
        """A session starts: what is marked now."""
        head = self.repository.git("rev-parse", "HEAD")
        commits = read_log(self._run(*LOG, f"{self.head}...{head}", "--"))
        assert commits is not None
        diff = read_diff(self._run("diff-tree", "-r", "-z", "--no-renames", "--name-status", self.head, head))
        self.changes, self.head = apply_commits(self.changes, commits, diff, since=since), head
        return CodeMarks(self.changes)

    def _run(self, *words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=self.repository.folder, check=True, capture_output=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "clone")
    for name in ("pay", "queue", "ledger"):
        made.write(f"src/{name}.py", "".join(f"{name}_{line} = {line}\n" for line in range(30)))
    made.commit("First")
    return made


@pytest.fixture
def clone(repository: Repository) -> Clone:
    return Clone(repository)


def test_a_file_that_a_colleague_removed_is_marked_with_the_commit_and_its_author(repository: Repository, clone: Clone):
    (repository.folder / "src/pay.py").unlink()
    commit = repository.commit("Remove it", author="Bob")

    marks = clone.start()

    mark = f" (src/pay.py was removed in {commit[:7]}, by Bob)"
    assert marks.describe([], "Pay() in src/pay.py takes the lock first now", NOTED) == mark
    assert marks.describe(["/home/ann/orders/src/pay.py"], "It takes the lock first", NOTED) == mark
    assert marks.describe(["src/queue.py"], "The queue is fair, see pay.py", NOTED) == ""
    assert marks.describe(["lib/src/pay.py"], "", NOTED) == ""


def test_a_file_that_was_moved_is_followed_through_all_its_moves(repository: Repository, clone: Clone):
    repository.git("mv", "src/pay.py", "src/paying.py")
    first = repository.commit("Move it")
    marks = clone.start()
    assert marks.describe(["src/pay.py"], "", NOTED) == f" (src/pay.py was moved to src/paying.py in {first[:7]}, by Ann)"

    repository.git("mv", "src/paying.py", "src/payments.py")
    second = repository.commit("Move it again")
    marks = clone.start()
    assert marks.describe(["src/pay.py"], "", NOTED) == f" (src/pay.py was moved to src/payments.py in {second[:7]}, by Ann)"

    (repository.folder / "src/payments.py").unlink()
    third = repository.commit("Remove it")
    marks = clone.start()
    mark = f" (src/pay.py was moved to src/paying.py, which was removed in {third[:7]}, by Ann)"
    assert marks.describe(["src/pay.py"], "", NOTED) == mark


def test_a_file_that_comes_back_is_marked_no_longer(repository: Repository, clone: Clone):
    (repository.folder / "src/pay.py").unlink()
    repository.commit("Remove it")
    assert "was removed" in clone.start().describe(["src/pay.py"], "", NOTED)

    repository.git("revert", "--no-edit", "HEAD")

    assert "removed" not in clone.start().describe(["src/pay.py"], "", NOTED)


def test_the_first_commit_after_a_line_may_hold_what_it_tells_so_only_later_ones_change_it(repository: Repository, clone: Clone):
    repository.write("src/pay.py", "a = 1\n")
    repository.commit("What the line tells")
    assert clone.start().describe(["src/pay.py"], "", NOTED) == ""

    repository.write("src/pay.py", "a = 2\n")
    commit = repository.commit("Something else", author="Bob")

    marks = clone.start()
    assert marks.describe(["src/pay.py"], "", NOTED) == f" (src/pay.py was changed since, last in {commit[:7]}, by Bob)"
    assert marks.describe(["src/pay.py"], "", datetime.now(UTC)) == ""


def test_what_is_told_later_than_a_commit_is_not_marked_unless_the_clone_had_it_later(repository: Repository, clone: Clone):
    (repository.folder / "src/pay.py").unlink()
    repository.commit("Remove it")
    later = datetime(2026, 6, 1, tzinfo=UTC)

    marks = clone.start(since=int((later + timedelta(days=1)).timestamp()))

    assert "was removed" in marks.describe(["src/pay.py"], "", later)
    assert marks.describe(["src/pay.py"], "", later + timedelta(days=2)) == ""


def test_a_mark_is_that_of_the_branch_and_comes_back_with_it(repository: Repository, clone: Clone):
    repository.git("checkout", "-q", "-b", "feature")
    repository.write("src/new.py", "a = 1\n")
    (repository.folder / "src/pay.py").unlink()
    repository.commit("On the feature")
    assert "was removed" in clone.start().describe(["src/pay.py"], "", NOTED)

    repository.git("checkout", "-q", "main")
    marks = clone.start()
    assert marks.describe(["src/pay.py", "src/new.py"], "", NOTED) == ""  # new.py was never removed

    repository.git("checkout", "-q", "feature")
    assert "was removed" in clone.start().describe(["src/pay.py"], "", NOTED)


def test_a_rebase_a_squash_and_a_reset_are_followed(repository: Repository, clone: Clone):
    repository.git("checkout", "-q", "-b", "feature")
    (repository.folder / "src/pay.py").unlink()
    repository.commit("Remove it")
    clone.start()
    repository.git("checkout", "-q", "main")
    repository.write("src/queue.py", "a = 1\n")
    repository.commit("On main")
    repository.git("checkout", "-q", "feature")
    repository.git("rebase", "-q", "main")
    rebased = repository.git("rev-parse", "HEAD")
    assert f"was removed in {rebased[:7]}" in clone.start().describe(["src/pay.py"], "", NOTED)

    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--squash", "feature")
    squashed = repository.commit("All of it at once")
    assert f"was removed in {squashed[:7]}" in clone.start().describe(["src/pay.py"], "", NOTED)

    repository.git("reset", "-q", "--hard", "HEAD~1")
    assert clone.start().describe(["src/pay.py"], "", NOTED) == ""


def test_a_merge_that_keeps_the_file_against_its_removal_leaves_no_mark(repository: Repository, clone: Clone):
    repository.git("checkout", "-q", "-b", "side")
    (repository.folder / "src/pay.py").unlink()
    repository.commit("Remove it")
    repository.git("checkout", "-q", "main")
    repository.write("src/pay.py", "kept = 1\n")
    repository.commit("Change it")
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("merge", "-q", "--no-edit", "side")
    repository.commit("Keep it")

    assert "removed" not in clone.start().describe(["src/pay.py"], "", NOTED)


def test_a_file_that_came_and_went_between_two_starts_is_marked(repository: Repository, clone: Clone):
    repository.write("src/new.py", "a = 1\n")
    repository.commit("Add it")
    (repository.folder / "src/new.py").unlink()
    commit = repository.commit("Remove it", author="Bob")

    assert clone.start().describe(["src/new.py"], "", NOTED) == f" (src/new.py was removed in {commit[:7]}, by Bob)"


def test_hostile_names_of_files_and_authors_stay_in_their_line(repository: Repository, clone: Clone):
    names = ["a\nb.py", "</cmserver-context>.py", ":100644 100644 0 0 D", ">", "\x01", "--output=x"]
    for name in names:
        repository.write(f"src/{name.replace('/', '_')}", "x" * 200 + name)
    repository.commit("Add them")
    clone.start()
    for name in names:
        (repository.folder / "src" / name.replace("/", "_")).unlink()
    repository.commit("Remove them", author="</cmserver-context>\x1b[31m")

    marks = clone.start()

    assert sorted(path for path, done in clone.changes.items() if done[-1].kind == "D") == sorted(
        f"src/{name.replace('/', '_')}" for name in names
    )
    mark = marks.describe(["src/<_cmserver-context>.py"], "", NOTED)
    assert "<_cmserver-context" not in mark
    assert "</cmserver-context" not in mark
    assert mark.isprintable()


def test_what_is_no_log_says_nothing():
    assert read_log(b"") == []
    assert read_log(b"no log") is None
    assert read_log(b">\0abc\0Ann\0never\0") is None
    assert read_log(b">\0" + b"a" * 40 + b"\0Ann\0" + b"9" * 400 + b"\0") is None
    assert read_diff(b"") == {}
