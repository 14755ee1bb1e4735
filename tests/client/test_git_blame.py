"""Which commit a line is of: also in work trees, submodules and shallow clones, and without running anything of the repository."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from cmserver.base.errors import CmserverError, NotFound
from cmserver.client.git_blame import FileCommit, FileLine, NoSuchLine, find_file, read_commits, read_line
from cmserver.client.git_history import UnreadableRepository
from tests.repositories import Repository
from tests.table import try_rows

STRANGE = 'täst \t"x"\n$(touch x);-n:3.py'


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "clone")
    made.write("src/pay.py", "a = 1\nb = 2\nc = 3\n")
    made.commit("Pay")
    return made


def line(folder: Path, path: str, number: int) -> FileLine:
    return read_line(find_file(folder / path), number)


def commit_of(folder: Path, path: str, number: int) -> FileCommit:
    commit = line(folder, path, number).commit
    assert commit is not None
    return commit


def test_a_line_has_its_commit_wherever_it_stands_now(repository: Repository):
    repository.write("src/pay.py", "a = 1\nb = 20\nc = 3\n")
    second = repository.commit("Raise b\n\nIt was too small.\n", author="Bob")
    repository.write("src/pay.py", "new\nnew\na = 1\nb = 20\nnew\nc = 3\nnew\n")

    found = line(repository.folder, "src/pay.py", 4)

    assert found.text == "b = 20"
    assert found.commit == FileCommit(
        hash=second, author="Bob", authored_at_epoch=1_767_225_720_000, subject="Raise b", path="src/pay.py"
    )
    assert commit_of(repository.folder, "src/pay.py", 6).subject == "Pay"
    assert [line(repository.folder, "src/pay.py", number).commit for number in (1, 2, 5, 7)] == [None] * 4


def test_a_renamed_file_is_followed_and_strange_names_are_names(repository: Repository):
    repository.git("mv", "src/pay.py", STRANGE)
    repository.commit("Rename")
    repository.git("mv", STRANGE, "src/money.py")
    last = repository.commit("Rename again")

    assert commit_of(repository.folder, "src/money.py", 1).path == "src/pay.py"
    assert [(commit.subject, commit.path) for commit in read_commits(find_file(repository.folder / "src/money.py"))] == [
        ("Rename again", "src/money.py"),
        ("Rename", STRANGE),
        ("Pay", "src/pay.py"),
    ]
    repository.git("checkout", "-q", f"{last}~1")
    repository.write(STRANGE, "a = 9\nb = 2\nc = 3\n")
    repository.commit("Change")
    assert commit_of(repository.folder, STRANGE, 1).path == STRANGE


def test_a_file_that_git_does_not_have_yet_is_in_no_commit(repository: Repository, tmp_path: Path):
    repository.write("src/new.py", "n = 1\n")
    unborn = Repository(tmp_path / "unborn")
    unborn.write("a.py", "a = 1\n")

    assert line(repository.folder, "src/new.py", 1) == FileLine(text="n = 1", occurrences=1, commit=None)
    assert line(unborn.folder, "a.py", 1) == FileLine(text="a = 1", occurrences=1, commit=None)
    assert find_file(unborn.folder / "a.py").blob is None


def test_a_work_tree_and_a_submodule_have_their_own_commits(repository: Repository, tmp_path: Path):
    repository.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    outer = Repository(tmp_path / "outer")
    outer.write("a.py", "a = 1\n")
    outer.commit("Outer")
    outer.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository.folder), "inner")

    assert commit_of(tmp_path / "tree", "src/pay.py", 1).subject == "Pay"
    assert find_file(tmp_path / "tree/src/pay.py").path == "src/pay.py"
    assert commit_of(outer.folder, "inner/src/pay.py", 2).subject == "Pay"
    assert find_file(outer.folder / "inner/src/pay.py").path == "src/pay.py"


def test_a_line_of_a_shallow_clone_may_be_older_than_its_first_commit(repository: Repository, tmp_path: Path):
    for number in range(3):
        repository.write("src/pay.py", f"a = 1\nb = 2\nc = {number}0\n")
        repository.commit(f"Change {number}")
    repository.git("clone", "-q", "--depth", "2", f"file://{repository.folder}", str(tmp_path / "shallow"))

    first, third = (commit_of(tmp_path / "shallow", "src/pay.py", number) for number in (1, 3))

    assert (first.subject, first.is_edge, third.subject, third.is_edge) == ("Change 1", True, "Change 2", False)
    assert [commit.is_edge for commit in read_commits(find_file(tmp_path / "shallow/src/pay.py"))] == [False, True]
    assert not commit_of(repository.folder, "src/pay.py", 1).is_edge


def test_it_is_counted_how_often_a_line_stands_in_the_file(repository: Repository):
    repository.write("src/pay.py", "a = 1\n    a = 1\r\nb = 2\n")

    assert [line(repository.folder, "src/pay.py", number).occurrences for number in (1, 2, 3)] == [2, 2, 1]


def test_an_author_is_called_as_the_commit_says(repository: Repository):
    repository.write(".mailmap", "Nobody <nobody@example.com> <ann@example.com>\n")

    assert commit_of(repository.folder, "src/pay.py", 1).author == "Ann"
    assert [commit.author for commit in read_commits(find_file(repository.folder / "src/pay.py"))] == ["Ann"]


@try_rows(
    ("path", "number", "error", "says"),
    [
        ("src/none.py", 1, NoSuchLine, "is not there"),
        ("src", 1, NoSuchLine, "is a folder"),
        ("link.py", 1, NoSuchLine, "is a link"),
        ("src/pay.py", 4, NoSuchLine, "has 3 lines, and no line 4"),
        ("../outside.py", 1, NotFound, "is in no git repository"),
        (".git/config", 1, UnreadableRepository, "work tree"),
        ("bytes.bin", 1, UnreadableRepository, "is no text"),
        ("large.txt", 1, UnreadableRepository, "larger than 5 MB"),
        ("filtered.bin", 1, UnreadableRepository, "through a filter"),
        ("ident.py", 1, UnreadableRepository, "through a filter"),
        ("\udcff.py", 1, NoSuchLine, "name that is no UTF-8"),
        ("a" * 5_000, 1, NoSuchLine, "cannot be read: File name too long"),
    ],
)
def test_what_has_no_line_says_so(tmp_path: Path, path: str, number: int, error: type[CmserverError], says: str):
    folder = tmp_path / path.replace("/", "-")[:20]
    repository = Repository(folder / "clone")
    repository.write("src/pay.py", "a = 1\nb = 2\nc = 3\n")
    repository.write(".gitattributes", "filtered.bin filter=lfs\nident.py ident\n")
    repository.write("ident.py", "a = '$Id$'\n")
    repository.write("\udcff.py", "a = 1\n")
    repository.write("filtered.bin", "a\n")
    repository.write("bytes.bin", "a\0\n")
    repository.write("large.txt", "a\n" * 2_500_001)
    (repository.folder / "link.py").symlink_to("src/pay.py")
    (folder / "outside.py").write_text("a\n", "utf-8")
    repository.commit()

    with pytest.raises(error, match=says):
        line(repository.folder, path, number)


def test_a_damaged_repository_says_so(repository: Repository):
    shutil.rmtree(repository.folder / ".git" / "objects")
    (repository.folder / ".git" / "objects").mkdir()

    with pytest.raises(UnreadableRepository, match="git cannot read the repository"):
        line(repository.folder, "src/pay.py", 1)


def test_what_was_not_fetched_is_not_fetched(repository: Repository, tmp_path: Path):
    repository.write("src/pay.py", "a = 1\nb = 2\nc = 4\n")
    repository.commit("Change")
    repository.git("config", "uploadpack.allowFilter", "true")
    repository.git("clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repository.folder}", str(tmp_path / "half"))
    (tmp_path / "half/src").mkdir()
    (tmp_path / "half/src/pay.py").write_text("a = 1\n", "utf-8")

    with pytest.raises(UnreadableRepository, match="git cannot read the repository"):
        line(tmp_path / "half", "src/pay.py", 1)


def test_a_file_with_too_many_changes_is_not_compared(repository: Repository):
    same = "".join(f"same {number}\n" for number in range(3_000))
    repository.write("src/pay.py", f"{same}a = 1\n{same}")
    repository.commit("Lines")
    for changed, is_told in ((2_000, True), (2_001, False)):
        new = "".join(f"new {number}\n" for number in range(changed))
        repository.write("src/pay.py", f"{same}{new}{same}")
        if is_told:
            assert line(repository.folder, "src/pay.py", 3_001).commit is None
        else:
            with pytest.raises(UnreadableRepository, match=r"changed too much since its newest commit to tell"):
                line(repository.folder, "src/pay.py", 3_001)
        assert commit_of(repository.folder, "src/pay.py", 3_000).subject == "Lines"


def test_a_locked_folder_says_so(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # as for anybody but root

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "lstat", refuse)

    with pytest.raises(NoSuchLine, match="cannot be read: Permission denied"):
        find_file(repository.folder / "src/pay.py")


def test_nothing_of_the_repository_is_run(repository: Repository, tmp_path: Path):
    trap, program = tmp_path / "trap", tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >>'{trap}'\ncat\n", "utf-8")
    program.chmod(0o755)
    repository.write(".gitattributes", "* diff=trap merge=trap\n")
    repository.write("src/pay.py", "a = 1\nb = 20\nc = 3\n")
    (tmp_path / "ignored").write_text(repository.commit("Raise b") + "\n", "utf-8")
    for name, value in {
        "diff.trap.textconv": str(program), "diff.trap.command": str(program), "diff.external": str(program),
        "filter.trap.clean": str(program), "filter.trap.smudge": str(program), "filter.trap.process": str(program),
        "core.fsmonitor": str(program), "core.hooksPath": str(tmp_path), "core.pager": str(program), "pager.log": str(program),
        "pager.blame": str(program), "gpg.program": str(program), "log.showSignature": "true", "core.sshCommand": str(program),
        "alias.blame": f"!{program}", "alias.log": f"!{program}", "alias.check-attr": f"!{program}",
        "blame.ignoreRevsFile": str(tmp_path / "ignored"), "remote.origin.url": f"ext::{program}", "remote.origin.promisor": "true",
        "extensions.partialClone": "origin",
    }.items():  # fmt: skip
        repository.git("config", name, value)
    for hook in ("post-checkout", "pre-auto-gc", "post-index-change", "reference-transaction"):
        shutil.copy(program, tmp_path / hook)
    repository.write("src/pay.py", "a = 1\nb = 20\nd = 4\n")
    (repository.folder / "src/filtered.py").write_text("a = 1\n", "utf-8")

    assert commit_of(repository.folder, "src/pay.py", 2).subject == "Raise b"
    assert line(repository.folder, "src/pay.py", 3).commit is None
    assert len(read_commits(find_file(repository.folder / "src/pay.py"))) == 2
    (repository.folder / ".git/info").mkdir(exist_ok=True)
    (repository.folder / ".git/info/attributes").write_text("* filter=trap\n", "utf-8")
    with pytest.raises(UnreadableRepository, match="through a filter"):
        find_file(repository.folder / "src/pay.py")
    assert not trap.exists()
