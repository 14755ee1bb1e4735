"""A made history is replayed: after every step each mark is held against the files that are there."""

from __future__ import annotations

import random
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.git.test_clones import Clone
from tests.repositories import Repository

NOTED = datetime(2025, 12, 1, tzinfo=UTC)


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
                git("revert", "--no-edit", "HEAD")
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_marks_are_true_after_every_step_and_few_are_missing(tmp_path: Path, seed: int):
    repository = Repository(tmp_path / "clone")
    history, clone = History(repository, seed), Clone(repository)
    noted = history.files
    gone_count = marked_count = 0

    for _ in range(25):
        history.go_on()
        marks = clone.start()
        files = set(history.files)
        gone_now = {path for path in noted if path not in files}
        for path in noted:
            mark = marks.describe([path], "", NOTED)
            if "was removed in" in mark or "was moved to" in mark:
                assert path not in files, mark
                if "was moved to" in mark and "which was removed" not in mark:
                    assert mark.partition(" was moved to ")[2].partition(" in ")[0] in files
                marked_count += 1
            elif mark:
                assert path in files, mark
        gone_count += len(gone_now)

    assert gone_count == 0 or marked_count >= 0.9 * gone_count
