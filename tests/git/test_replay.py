"""Made histories are replayed: after every step each mark is judged by what is in the files, and by the commit that it names.

The judge reads the history by itself, without renames and without what the program keeps of it.
"""

from __future__ import annotations

import random
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.git.test_clones import Clone
from tests.repositories import Repository

SEEDS, STEPS = 6, 25


class History:
    """Makes a random history: files come, change, move and go, on branches that are merged, squashed and rebased.

    The first line of a file says which one it is, wherever it goes.
    """

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
        match self._random.choice(["add", "modify", "modify", "rewrite", "remove", "move"]):
            case "remove" if len(files) > 3:
                self._repository.git("rm", "-q", file)
            case "move":
                self._made += 1
                self._repository.git("mv", file, f"src/moved_{self._made}.py")
            case "modify":
                with (self._repository.folder / file).open("a") as out:
                    out.write(f"changed = {self._random.random()}\n")
            case "rewrite":
                first = (self._repository.folder / file).read_text().partition("\n")[0]
                lines = (f"b_{self._random.random()} = {line}\n" for line in range(20))
                self._repository.write(file, first + "\n" + "".join(lines))
            case _:
                self._add()

    def _add(self) -> None:
        self._made += 1
        self._repository.write(f"src/file_{self._made}.py", "".join(f"a_{self._made}_{line} = {line}\n" for line in range(20)))


class Line(msgspec.Struct, frozen=True):
    """A line of that time about a file that was there, with what was in it."""

    path: str
    at: int
    content: str


class Touch(msgspec.Struct, frozen=True):
    """What a commit did to a file: it added (A), modified (M) or deleted it (D). A file that is moved is deleted and added."""

    kind: str
    commit: str
    at: int
    author: str


class Checkout:
    """The history of what is checked out, and its files."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self.touches: dict[str, list[Touch]] = {}
        self._before: dict[str, set[str]] = {}
        log = repository.git(
            "log", "--topo-order", "--reverse", "--no-renames", "--name-status", "--format=/%h %at %an %p", "--abbrev=7", "HEAD"
        )
        for entry in log.lstrip("/").split("\n/"):
            about, _, files = entry.partition("\n")
            commit, at, author, *parents = about.split()
            self._before[commit] = {it for parent in parents for it in (parent, *self._before[parent])}
            for kind, path in (line.split("\t") for line in files.split("\n") if line):
                self.touches.setdefault(path, []).append(Touch(kind, commit, int(at), author))

    def read(self, path: str, commit: str = "") -> str | None:
        """What is in the file, now or in the commit; None where there is none."""
        if not commit:
            file = self._repository.folder / path
            return file.read_text() if file.exists() else None
        try:
            return self._repository.git("show", f"{commit}:{path}")
        except subprocess.CalledProcessError:
            return None

    def find_last(self, path: str) -> list[Touch]:
        """The last commits that touched the file: one, or several on branches that were merged."""
        done = self.touches.get(path, [])
        return [it for it in done if not any(it.commit in self._before[other.commit] for other in done)]

    def find_since(self, line: Line) -> list[Touch]:
        return [it for it in self.touches.get(line.path, []) if it.at > line.at]


def which(content: str | None) -> str:
    """Which file it is, by its first line."""
    return (content or "").partition("\n")[0]


MARK = re.compile(
    r" \((?P<path>\S+) was (?P<what>removed|changed since, last|moved(?: to (?P<to>\S+?)(?P<gone>, which was removed)?)?)"
    r" in (?P<commit>[0-9a-f]{7}), by (?P<author>\w+)\)"
)


def is_right(mark: str, line: Line, checkout: Checkout) -> bool:
    """Whether the files say the same, and the commit that is named did it after the line, as the last one, by that author."""
    match = MARK.fullmatch(mark)
    if match is None or match["path"] != line.path:
        return False
    commit, now, to = match["commit"], checkout.read(line.path), match["to"]

    def did(kind: str, path: str) -> bool:
        done = (it for it in checkout.find_last(path) if it.commit == commit)
        return any(it.kind == kind and it.at > line.at and it.author == match["author"] for it in done)

    def is_it(path: str, at: str = "") -> bool:
        return which(checkout.read(path, at)) == which(line.content)

    if match["what"].startswith("changed"):
        return now is not None and now != line.content and did("M", line.path)
    if now is not None:
        return False
    if match["what"] == "removed":
        return did("D", line.path)
    if not any(did("D", path) and is_it(path, f"{commit}~") for path in checkout.touches):
        return False
    if match["gone"]:
        return any(it.kind == "A" and is_it(to, it.commit) for it in checkout.touches[to])
    return (to is None or is_it(to)) and any(
        it.commit == commit and it.kind == "A" and is_it(path, commit)
        for path, done in checkout.touches.items()
        if to in {path, None}
        for it in done
    )


def can_be_marked(line: Line, checkout: Checkout) -> bool:
    """Whether later commits gave the file two other contents, none of them brought it back, and nothing older came last."""
    since = checkout.find_since(line)
    if not all(it.kind == "M" for it in since) or not all(it.at > line.at for it in checkout.find_last(line.path)):
        return False
    return len({checkout.read(line.path, it.commit) for it in since}) > 1


class Score(msgspec.Struct):
    """How many marks there were of lines, how many of these are right, and of which lines there was one.

    Rewritten is a file that has lost half of a line's lines or more.
    """

    marks: int = 0
    right: int = 0
    gone: int = 0
    gone_marked: int = 0
    rewritten: int = 0
    rewritten_marked: int = 0
    markable: int = 0
    markable_marked: int = 0

    def add(self, line: Line, mark: str, checkout: Checkout) -> None:
        now = checkout.read(line.path)
        self.marks += bool(mark)
        self.right += bool(mark) and is_right(mark, line, checkout)
        self.gone += now is None
        self.gone_marked += now is None and bool(mark)
        told = set(line.content.splitlines())
        if now is not None and len(told & set(now.splitlines())) < len(told) / 2:
            self.rewritten += 1
            self.rewritten_marked += bool(mark)
            can = can_be_marked(line, checkout)
            self.markable += can
            self.markable_marked += can and bool(mark)


def replay(folder: Path, seed: int) -> Score:
    """Lines of all times, marked in the clone in which they were told, and in one that pulls now and then."""
    repository = Repository(folder / "clone")
    history = History(repository, seed)
    own = Clone(repository)
    other_folder = Repository(folder / "other")
    other_folder.git("remote", "add", "origin", str(repository.folder))
    other_folder.pull()
    other = Clone(other_folder)
    lines: list[Line] = []
    score = Score()
    for step in range(STEPS):
        told = history.files[step % 3 :: 3]
        lines += [Line(path, repository.now, (repository.folder / path).read_text()) for path in told]
        history.go_on()
        clones = [own]
        if step % 4 == 3:
            other_folder.pull()
            clones.append(other)
        checkout = Checkout(repository)
        for clone in clones:
            marks = clone.start()
            for line in lines:
                score.add(line, marks.describe([line.path], "", datetime.fromtimestamp(line.at, UTC)), checkout)
    return score


@pytest.mark.slow
def test_marks_are_true_after_every_step_and_few_are_missing(tmp_path: Path):
    """Gone are also files that this history never had, and those that an older commit removed there: neither is marked.

    Nor is one that a single commit rewrote, or an older one last.
    """
    scores = [replay(tmp_path / str(seed), seed) for seed in range(SEEDS)]
    pooled = Score(*(sum(counts) for counts in zip(*map(msgspec.structs.astuple, scores), strict=True)))

    assert [score for score in scores if score.right < 0.97 * score.marks or score.gone_marked < 0.75 * score.gone] == []
    assert pooled.gone_marked >= 0.9 * pooled.gone, pooled
    assert pooled.markable_marked == pooled.markable > 100, pooled
    assert pooled.rewritten_marked >= 0.25 * pooled.rewritten, pooled
    assert pooled.gone_marked + pooled.rewritten_marked >= 0.75 * (pooled.gone + pooled.rewritten), pooled
