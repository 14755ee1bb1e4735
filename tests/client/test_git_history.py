"""What is read of a repository: commits and documents, bounded, and without running anything of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cmserver.client import git_history
from cmserver.client.git_history import (
    CommitText,
    UnreadableRepository,
    count_commits,
    find_head,
    list_documents,
    read_commits,
    read_committed,
    read_document,
    read_line_changes,
)
from tests.repositories import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "clone")


def read(folder: Path, limit: int = 100) -> list[CommitText]:
    return [commit for commit in read_commits(folder, limit) if commit is not None]


def test_a_commit_has_its_message_author_time_and_files(repository: Repository):
    repository.write("src/pay.py", "a = 1\n")
    repository.write('täst \n\t"x".py', "b = 1\n")
    made = repository.commit("Lock the ledger\n\nTwo writers lost a payment.\n\nReviewed-by: Bob <bob@example.com>\n")

    (commit,) = read(repository.folder)

    assert commit == CommitText(
        hash=made,
        subject="Lock the ledger",
        body="Two writers lost a payment.\n\nReviewed-by: Bob <bob@example.com>",
        author="Ann",
        authored_at_epoch=1_767_225_660_000,
        files=["src/pay.py", 'täst \n\t"x".py'],
        file_count=2,
    )


def test_merges_bots_and_commits_without_a_message_are_left_out_the_newest_come_first(repository: Repository):
    repository.commit("First")
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("Of the side")
    repository.git("checkout", "-q", "main")
    repository.commit("Bump x from 1 to 2", author="dependabot[bot]")
    repository.commit("Bump y", author="Renovate", address="29139614+renovate[bot]@users.noreply.github.com")
    repository.git("merge", "-q", "--no-ff", "-m", "Merge side", "side")
    repository.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "", at="2026-01-01T05:00:00+00:00")

    assert sorted(commit.subject for commit in read(repository.folder)) == ["First", "Of the side"]
    assert count_commits(repository.folder, 100) == len(list(read_commits(repository.folder, 100))) == 5
    assert [commit.subject for commit in read(repository.folder, 1)] == []


def test_a_subfolder_and_a_worktree_read_as_their_repository(repository: Repository, tmp_path: Path):
    repository.write("src/pay.py", "a = 1\n")
    repository.commit("Pay")
    repository.git("config", "diff.relative", "true")
    repository.git("worktree", "add", "-q", str(tmp_path / "other"))

    assert [commit.files for commit in read(repository.folder / "src")] == [["src/pay.py"]]
    assert [commit.files for commit in read(tmp_path / "other")] == [["src/pay.py"]]


def test_names_of_another_file_are_not_read(repository: Repository, tmp_path: Path):
    (tmp_path / "names").write_text("Somebody Else <ann@example.com>\n", "utf-8")
    repository.write("names", "Somebody Else <ann@example.com>\n")
    repository.commit()
    for name, value in {"mailmap.file": str(tmp_path / "names"), "mailmap.blob": "HEAD:names"}.items():
        repository.git("config", name, value)
        assert [commit.author for commit in read(repository.folder)] == ["Ann"]


def test_a_file_of_names_in_the_work_tree_is_not_read(repository: Repository):
    repository.write("a.md", "one\n")
    repository.commit()
    repository.write(".mailmap", "Somebody Else <ann@example.com>\n")

    commits, _ = read_line_changes(repository.folder, "a.md")

    assert [commit.author for commit in commits] == ["Ann"]


def test_a_git_that_says_nothing_is_ended(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\nexec sleep 20\n", "utf-8")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(git_history, "_SILENT_SECONDS", 0.2)

    with pytest.raises(UnreadableRepository, match="git said nothing for"):
        read(repository.folder)


def test_a_long_message_a_strange_encoding_and_strange_signs_are_cut_and_replaced(repository: Repository):
    repository.commit(b"Long " + b"x" * 5_000 + b"\n\n" + b"y" * 5_000_000)
    repository.commit(b"Latin \xe9 and \x1b[31mred\x07")

    red, long = read(repository.folder)

    assert red.subject == "Latin é and \x1b[31mred\x07"
    assert (len(long.subject), long.body.strip("y")) == (1_000, "")
    assert len(long.body) <= 16_000


def test_nothing_of_the_repository_is_run(repository: Repository, tmp_path: Path):
    trap = tmp_path / "trap"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >>'{trap}'\ncat\n", "utf-8")
    program.chmod(0o755)
    repository.write("README.md", "# Read\n")
    repository.write("src/pay.py", "a = 1\n")
    repository.commit("First")
    repository.write("src/pay.py", "a = 2\n")
    # A signature that git would have checked.
    tree, parent = repository.git("write-tree"), repository.git("rev-parse", "HEAD")
    signed = (
        f"tree {tree}\nparent {parent}\nauthor Ann <a@b> 1767225700 +0000\ncommitter Ann <a@b> 1767225700 +0000\n"
        "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\nSigned\n"
    )
    made = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=signed.encode())
    repository.git("update-ref", "HEAD", made)
    (repository.folder / ".git" / "info").mkdir(exist_ok=True)
    (repository.folder / ".git" / "info" / "attributes").write_text("* filter=trap diff=trap merge=trap\n", "utf-8")
    repository.write(".gitattributes", "* filter=trap diff=trap\n")
    for name, value in {
        "filter.trap.clean": str(program), "filter.trap.smudge": str(program), "filter.trap.process": str(program),
        "diff.trap.textconv": str(program), "diff.trap.command": str(program), "diff.external": str(program),
        "core.fsmonitor": str(program), "core.hooksPath": str(tmp_path), "core.pager": str(program), "pager.log": str(program),
        "gpg.program": str(program), "log.showSignature": "true", "core.sshCommand": str(program), "core.editor": str(program),
        "core.askPass": str(program), "credential.helper": str(program), "alias.log": f"!{program}", "alias.ls-tree": f"!{program}",
        "uploadpack.packObjectsHook": str(program), "core.alternateRefsCommand": str(program),
        "remote.origin.url": f"ext::{program}", "remote.origin.promisor": "true", "extensions.partialClone": "origin",
    }.items():  # fmt: skip
        repository.git("config", name, value)
    for hook in ("post-checkout", "pre-auto-gc", "post-index-change", "reference-transaction"):
        shutil.copy(program, tmp_path / hook)
        shutil.copy(program, repository.folder / ".git" / "hooks" / hook)

    commits = read(repository.folder)
    documents = list_documents(repository.folder)
    text = read_document(repository.folder, "README.md", documents["README.md"])
    file = read_committed(repository.folder, "src/pay.py", 100)
    _, lines = read_line_changes(repository.folder, "src/pay.py")

    assert file == b"a = 1\n"
    assert [(line.is_added, line.text) for line in lines] == [(True, "a = 1")]
    assert [commit.subject for commit in commits] == ["Signed", "First"]
    assert text is not None
    assert text.text == "# Read"
    assert not trap.exists()


def test_the_lines_of_a_file_are_told_with_the_commits_that_took_them_in_and_out(repository: Repository):
    assert find_head(repository.folder) is None
    repository.write("a.md", "one\n--- two\n+++ three\n")
    first = repository.commit("First")
    repository.git("checkout", "-q", "-b", "side")
    repository.write("a.md", "one\n+++ three\n")
    second = repository.commit("Second", author="Bob\x1b[31m")
    repository.git("checkout", "-q", "main")
    repository.write("other", "x")
    repository.commit("Of another file")
    repository.git("merge", "-q", "--no-ff", "-m", "Merge", "side")
    repository.git("config", "log.diffMerges", "on")
    repository.git("config", "log.follow", "true")
    repository.git("config", "log.showRoot", "false")

    commits, lines = read_line_changes(repository.folder / ".git" / "..", "a.md")

    assert [(commit.hash, commit.author) for commit in commits] == [(second, "Bob"), (first, "Ann")]
    assert [(line.commit.hash, line.is_added, line.text) for line in lines] == [
        (second, False, "--- two"),
        (first, True, "one"),
        (first, True, "--- two"),
        (first, True, "+++ three"),
    ]
    assert read_committed(repository.folder, "a.md", 3) == b"one\n"
    assert read_committed(repository.folder, "none.md", 3) is None


def test_documents_are_those_for_readers_as_they_stand_in_the_newest_commit(repository: Repository):
    for path in (
        "README.md",
        "docs/adr/0001-use-postgres.md",
        "AGENTS.md",
        "docs/CONTRIBUTING.md",
        "src/README.py",
        "lib/README.md",
    ):
        repository.write(path, f"# {path}\n")
    (repository.folder / "CONTRIBUTING.md").symlink_to("/etc/passwd")
    repository.commit()
    repository.write("README.md", "# Not committed\n")

    found = list_documents(repository.folder)

    assert sorted(found) == ["AGENTS.md", "README.md", "docs/CONTRIBUTING.md", "docs/adr/0001-use-postgres.md"]
    document = read_document(repository.folder, "README.md", found["README.md"])
    assert document is not None
    assert document.text == "# README.md"


def test_what_git_cannot_read_is_a_sentence(repository: Repository, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableRepository, match="git cannot read the repository"):
        read(tmp_path / "empty")
    with pytest.raises(UnreadableRepository, match="git cannot read the repository"):
        count_commits(repository.folder, 5)  # without a commit

    repository.write("a.py", "a = 1\n")
    repository.commit("First")
    repository.write("a.py", "a = 2\n")
    repository.commit("Second")
    tree = repository.git("rev-parse", "HEAD~1^{tree}")
    (repository.folder / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(UnreadableRepository, match="git cannot read the repository"):
        read(repository.folder)
