"""A made history is replayed: after every step each mark is held against the files that are there."""

from __future__ import annotations

import random
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.git.test_clones import Clone
from tests.repositories import Repository


class History:
    """Makes a random history: files come, change, move and go, on branches that are merged, squashed and rebased."""

    def __init__(self, repository: Repository, seed: int) -> None:
        self._random = random.Random(seed)
        self._repository = repository
        self._made = 0
        for _ in range(12):
            self._add()
        repository.commit("First")

    @property
    def files(self) -> list[str]:
        return self._repository.git("ls-tree", "-r", "--name-only", "HEAD").split()

    def go_on(self) -> None:
        """One to three commits, or an act on branches."""
        act = self._random.choice(["commit"] * 6 + ["branch", "switch", "merge", "squash", "rebase", "revert", "reset"])
        try:
            self._do(act)
        except subprocess.CalledProcessError:  # a conflict, or nothing to do
            for word in ("merge", "rebase", "revert"):
                subprocess.run(["git", word, "--abort"], cwd=self._repository.folder, check=False, capture_output=True)
            self._repository.git("reset", "-q", "--hard")

    def _do(self, act: str) -> None:
        git = self._repository.git
        branches = [name for name in git("branch", "--format=%(refname:short)").split() if name != git("branch", "--show-current")]
        match act:
            case "branch":
                self._made += 1
                git("checkout", "-q", "-b", f"branch-{self._made}")
            case "switch" if branches:
                git("checkout", "-q", self._random.choice(branches))
            case "merge" if branches:
                git("merge", "-q", "--no-edit", self._random.choice(branches))
            case "squash" if branches:
                git("merge", "-q", "--squash", self._random.choice(branches))
                self._repository.commit("Squash")
            case "rebase" if branches:
                git("rebase", "-q", self._random.choice(branches))
            case "revert":
                git("revert", "--no-edit", "HEAD", at=self._repository.tick())
            case "reset":
                git("reset", "-q", "--hard", "HEAD~1")
            case _:
                for _ in range(self._random.randrange(1, 4)):
                    self._change()
                    self._repository.commit(author=self._random.choice(["Ann", "Bob"]))

    def _change(self) -> None:
        files = self.files
        file = self._random.choice(files)
        match self._random.choice(["add", "modify", "modify", "remove", "move"]):
            case "remove" if len(files) > 3:
                self._repository.git("rm", "-q", file)
            case "move":
                self._made += 1
                self._repository.git("mv", file, f"src/moved_{self._made}.py")
            case "modify":
                with (self._repository.folder / file).open("a") as out:
                    out.write(f"changed = {self._random.random()}\n")
            case _:
                self._add()

    def _add(self) -> None:
        self._made += 1
        self._repository.write(f"src/file_{self._made}.py", "".join(f"a_{self._made}_{line} = {line}\n" for line in range(20)))


class Line:
    """A line of that time about a file that was there."""

    def __init__(self, path: str, at: int) -> None:
        self.path = path
        self.at = at


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_marks_are_true_after_every_step_and_few_are_missing(tmp_path: Path, seed: int):
    """Lines of all times, marked in the clone in which they were told, and in one that pulls now and then."""
    repository = Repository(tmp_path / "clone")
    history = History(repository, seed)
    own = Clone(repository)
    other_folder = Repository(tmp_path / "other")
    other_folder.git("remote", "add", "origin", str(repository.folder))
    other_folder.pull()
    other = Clone(other_folder)
    lines: list[Line] = []
    gone = marked = changed = 0

    for step in range(25):
        files = history.files
        lines += [Line(path, repository.now) for path in files[step % 3 :: 3]]
        history.go_on()
        clones = [own]
        if step % 4 == 3:
            other_folder.pull()
            clones.append(other)
        for clone in clones:
            marks = clone.start()
            for line in lines:
                mark = marks.describe([line.path], "", datetime.fromtimestamp(line.at, UTC))
                is_gone = not (repository.folder / line.path).exists()
                gone += is_gone
                if "was removed in" in mark or "was moved " in mark:
                    assert is_gone, mark
                    assert author_time(repository, mark) > line.at, mark
                    if "which was removed" not in mark and " moved to " in mark:
                        assert (repository.folder / mark.partition(" was moved to ")[2].partition(" in ")[0]).exists()
                    marked += 1
                elif mark:
                    assert not is_gone, mark
                    since = commits_since(repository, line)
                    assert len(since) > 1, mark
                    assert mark.partition(", last in ")[2][:7] in {commit[:7] for commit in since}, mark
                    changed += 1

    assert changed or seed == 1  # where files rather went
    assert marked >= 0.6 * gone


def author_time(repository: Repository, mark: str) -> int:
    """That of the commit which a mark names."""
    return int(repository.git("log", "-1", "--format=%at", mark.rpartition(" in ")[2][:7]))


def commits_since(repository: Repository, line: Line) -> list[str]:
    """The commits in the history that touched the file and were written after the line."""
    touched = repository.git("log", "--full-history", "--no-merges", "--format=%H %at", "HEAD", "--", line.path).splitlines()
    return [commit for commit, _, at in (entry.partition(" ") for entry in touched) if int(at) > line.at]
