"""Reads the history of a git repository on this machine: commits, and the documents that it keeps for its readers.

A repository is a stranger's. Nothing of it is run: no hook, filter, text conversion, diff driver or program that its config names,
and nothing is fetched. What it says is data, and bounded.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import msgspec

from cmserver.base.errors import CmserverError
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.text import FIELD_MOST, storable

MAX_COMMITS = 100_000
MAX_DOCUMENTS = 100
_MAX_FIELD_BYTES = 64_000
"""Of a longer one only the beginning is kept."""
_MAX_FILES, _MAX_PATH_CHARS = 50, 1_000
_MAX_DOCUMENT_BYTES = 1_000_000
_SUBJECT_CHARS, _AUTHOR_CHARS = 1_000, 200
_CHUNK_BYTES = 65_536
_SILENT_SECONDS = 120.0
"""Git is ended when it says nothing for so long."""
_SETTINGS = (
    "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.pager=cat",
    "log.showSignature=false", "log.diffMerges=off", "log.showRoot=true", "gpg.program=false", "gpg.ssh.program=false",
    "gpg.x509.program=false", "diff.external=", "i18n.logOutputEncoding=UTF-8",
    "log.mailmap=false", "mailmap.file=", "mailmap.blob=", "protocol.allow=never",
)  # fmt: skip
_LOG = (
    "log", "--no-merges", "--no-show-signature", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-notes", "--no-color",
    "--no-decorate", "--no-relative", "--ignore-submodules=all", "--name-only", "-z",
)  # fmt: skip
_BOT = re.compile(
    r"\[bot\]|^(?:dependabot|renovate|greenkeeper|snyk|github-actions|pre-commit-ci|allcontributors)\b|-bot$", re.IGNORECASE
)
_PATCH = (
    "log", "--patch", "--unified=0", "--text", "--no-show-signature", "--no-ext-diff", "--no-textconv", "--no-renames",
    "--no-follow", "--no-notes", "--no-color", "--no-decorate", "--no-relative", "--ignore-submodules=all",
)  # fmt: skip
_MAX_PATCH_COMMITS, _MAX_PATCH_BYTES = 1_000, 16_000_000
_DOCUMENT = re.compile(
    r"(?:README|CONTRIBUTING|AGENTS)(?:\.(?:md|rst|txt|adoc))?|(?:docs?|\.github)/CONTRIBUTING(?:\.(?:md|rst|txt|adoc))?"
    r"|(?:[^/]+/){0,4}(?:adrs?|decisions|architecture-decisions)/[^/]+\.(?:md|rst|txt|adoc)",
    re.IGNORECASE,
)


class UnreadableRepository(CmserverError):
    """Git cannot read the folder's repository, or there is none."""


class GitOutput:
    """What git says. It is ended when it says nothing for too long."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._out = cast("IO[bytes]", process.stdout)
        self.is_late = False

    def read(self, size: int) -> bytes:
        timer = threading.Timer(_SILENT_SECONDS, self._end)
        timer.daemon = True
        timer.start()
        try:
            return self._out.read(size)
        finally:
            timer.cancel()

    @property
    def is_whole(self) -> bool:
        """Whether git ended by itself, once all is read: what it said last is not cut then, whether it failed or not."""
        return self._process.wait() >= 0

    def _end(self) -> None:
        self.is_late = True
        self._process.kill()


class CommitText(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A commit, as the server takes it."""

    hash: str
    subject: str
    body: str
    author: str
    authored_at_epoch: int
    files: list[str]
    file_count: int


class DocumentText(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A document, as the server takes it."""

    path: str
    blob: str
    text: str


class FileRevision(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A commit that touched a file."""

    hash: str
    author: str
    committed_at: int
    """In seconds since 1970."""

    @property
    def name(self) -> str:
        """Who speaks by it: `commit 4c1e2f3 (Ann)`."""
        return f"commit {self.hash[:7]} ({self.author})"


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a commit took into a file, or out of it."""

    commit: FileRevision
    is_added: bool
    text: str


def find_repository(folder: Path | None = None) -> Path | None:
    """The top of the work tree around the folder, or else around the working folder; None outside of one."""
    try:
        folder = (folder or Path.cwd()).resolve()
    except FileNotFoundError:
        return None
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)


def has_commits(folder: Path) -> bool:
    """Whether the branch has a commit that can be read."""
    try:
        return count_commits(folder, 1) > 0
    except UnreadableRepository:
        return False


def count_commits(folder: Path, limit: int) -> int:
    """How many commits `read_commits` looks at. Raises UnreadableRepository."""
    text = run_git(folder, "rev-list", "--count", "--no-merges", f"--max-count={limit}", "HEAD", "--")
    return int(text) if text.strip().isdigit() else 0


def read_commits(folder: Path, limit: int) -> Iterator[CommitText | None]:
    """The newest `limit` commits of the branch, newest first, no merges; None in the place of one by a bot or without a message.

    Where a part of the history is not in this clone, what has no parent here has no files: all there are would be its own. Raises
    UnreadableRepository, in the middle of a damaged one after all that can be read.
    """
    boundary = secrets.token_hex(16)  # no file can be called so
    layout = f"--format={boundary}%x00%H%x00%an%x00%ae%x00%at%x00%B%x00"
    roots = ("-c", "log.showRoot=false") if is_shallow(folder) else ()
    with open_git(folder, *roots, *_LOG, f"--max-count={limit}", layout, "HEAD", "--") as out:
        fields: list[bytes] = []
        for token in split_fields(out):
            if token.lstrip(b"\n") == boundary.encode():
                if fields:
                    yield _parse_commit(fields)
                fields = []
            elif len(fields) < 5 or token.strip(b"\n"):
                fields.append(token)
        if fields and out.is_whole:
            yield _parse_commit(fields)


def list_documents(folder: Path) -> dict[str, str]:
    """README, CONTRIBUTING, AGENTS.md and decision records of the newest commit: blob ids by path."""
    found: dict[str, str] = {}
    with open_git(folder, "ls-tree", "-r", "-z", "--full-tree", "HEAD") as out:
        for entry in split_fields(out):
            head, _, name = entry.partition(b"\t")
            mode, kind, blob, *_ = [*head.decode(errors="replace").split(), "", "", ""]
            path = name.decode(errors="replace")
            if kind == "blob" and mode != "120000" and _DOCUMENT.fullmatch(path) and len(path) <= _MAX_PATH_CHARS:
                found[storable(path)] = blob
            if len(found) >= MAX_DOCUMENTS:
                break
    return found


def read_document(folder: Path, path: str, blob: str) -> DocumentText | None:
    """The text of a document as it is in the repository, its beginning if it is long; None for one that is empty or no text.

    Raises UnreadableRepository, also where this clone lacks it.
    """
    with open_git(folder, "cat-file", "blob", blob) as out:
        content = out.read(_MAX_DOCUMENT_BYTES)
    if b"\0" in content:
        return None
    text = storable(content.decode(errors="replace"))[:FIELD_MOST].strip()
    return DocumentText(path=path, blob=blob, text=text) if text else None


def find_head(folder: Path) -> str | None:
    """The commit that is checked out; None when there is none yet. Raises UnreadableRepository."""
    return run_git(folder, "rev-parse", "--revs-only", "HEAD").strip() or None


def is_shallow(folder: Path) -> bool:
    """Whether a part of the history is not in this clone. Raises UnreadableRepository."""
    return run_git(folder, "rev-parse", "--is-shallow-repository").strip() == "true"


def find_committed(folder: Path, path: str) -> str | None:
    """The blob id of a file in HEAD, by its path from the top; None when it is not there as a file (a link is none)."""
    with open_git(folder, "--literal-pathspecs", "ls-tree", "-z", "--full-tree", "HEAD", "--", path) as out:
        head, _, _ = next(split_fields(out), b"").partition(b"\t")
    mode, kind, blob, *_ = [*head.decode(errors="replace").split(), "", "", ""]
    return blob if kind == "blob" and mode != "120000" else None


def read_committed(folder: Path, path: str, max_bytes: int) -> bytes | None:
    """A file as it is in HEAD, at most one byte more than `max_bytes`; None when it is not there as a file."""
    blob = find_committed(folder, path)
    if blob is None:
        return None
    with open_git(folder, "cat-file", "blob", blob) as out:
        return out.read(max_bytes + 1)


def read_line_changes(folder: Path, path: str) -> tuple[list[FileRevision], list[LineChange]]:
    """The commits that touched the file, newest first, and the lines that they took in and out; of a merge none.

    Authors are called as the commit says: a `.mailmap` is not read. Of a long history the newest part. Raises UnreadableRepository.
    """
    boundary = secrets.token_hex(16)  # no line begins so
    layout = f"--format={boundary}%x00%H%x00%an%x00%ct"
    commits: list[FileRevision] = []
    changes: list[LineChange] = []
    is_hunk = False
    with open_git(folder, *_PATCH, f"--max-count={_MAX_PATCH_COMMITS}", layout, "HEAD", "--", f":(top,literal){path}") as out:
        for line in _read_lines(out):
            if line.startswith(f"{boundary}\0"):
                _, commit, author, at = [*line.split("\0"), "", "", ""][:4]
                name = sanitize_line(author).strip()[:_AUTHOR_CHARS]
                commits.append(FileRevision(hash=commit, author=name, committed_at=int(at) if re.fullmatch(r"\d{1,12}", at) else 0))
                is_hunk = False
            elif line.startswith(("diff --git ", "@@")):
                is_hunk = line.startswith("@@")
            elif is_hunk and commits and line[:1] in {"+", "-"}:
                changes.append(LineChange(commit=commits[-1], is_added=line[0] == "+", text=line[1:].rstrip("\r")))
    return commits, changes


def _read_lines(out: GitOutput) -> Iterator[str]:
    """The lines, as far as they are within the bound."""
    rest, size = b"", 0
    while size < _MAX_PATCH_BYTES and (chunk := out.read(_CHUNK_BYTES)):
        size += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    yield rest.decode(errors="replace")


def _parse_commit(fields: list[bytes]) -> CommitText | None:
    """None for one that is left out."""
    texts = [storable(field.decode(errors="replace")) for field in fields]
    if len(texts) < 5:
        return None
    commit, author, address, at, message, *files = texts
    subject, _, body = message.strip().partition("\n")
    if not subject.strip() or _BOT.search(author.strip()) or "[bot]@" in address:
        return None
    files = [name for file in files if (name := file.lstrip("\n"))]
    return CommitText(
        hash=commit,
        subject=subject.strip()[:_SUBJECT_CHARS],
        body=body.strip()[:FIELD_MOST],
        author=author.strip()[:_AUTHOR_CHARS],
        authored_at_epoch=int(at) * 1000 if re.fullmatch(r"-?\d{1,14}", at) else -1,
        files=[file for file in files if len(file) <= _MAX_PATH_CHARS][:_MAX_FILES],
        file_count=len(files),
    )


def split_fields(out: GitOutput) -> Iterator[bytes]:
    """What stands between NULs, of each its beginning."""
    rest = b""
    while chunk := out.read(_CHUNK_BYTES):
        *whole, rest_of_chunk = chunk.split(b"\0")
        for token in whole:
            yield (rest + token)[:_MAX_FIELD_BYTES]
            rest = b""
        rest = (rest + rest_of_chunk)[:_MAX_FIELD_BYTES]
    if rest.strip(b"\n"):
        yield rest


def _environment() -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **inherited,
        "LC_ALL": "C.UTF-8",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def _command(folder: Path, *words: str) -> list[str]:
    return ["git", "--no-pager", *(part for setting in _SETTINGS for part in ("-c", setting)), "-C", str(folder), *words]


@contextmanager
def open_git(folder: Path, *words: str) -> Generator[GitOutput]:
    """What git says; it is ended with the block. Raises UnreadableRepository when it failed."""
    with tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(  # noqa: S603 - git, without a shell
                _command(folder, *words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, env=_environment()
            )
        except FileNotFoundError:
            raise UnreadableRepository("There is no git on this machine.") from None
        with process:
            out = GitOutput(process)
            yield out
            if out.read(1):  # enough was read
                process.kill()
                return
        if out.is_late:
            raise UnreadableRepository(
                f"git said nothing for {_SILENT_SECONDS:g} seconds of the repository of {folder}. It was ended."
            )
        err.seek(0)
        said = err.read(4_096).decode(errors="replace")
    if process.returncode != 0:
        reason = sanitize_line(said.strip().splitlines()[0] if said.strip() else f"exit code {process.returncode}")
        raise UnreadableRepository(f"git cannot read the repository of {folder}: {reason}")


def run_git(folder: Path, *words: str) -> str:
    """The beginning of what git says. Raises UnreadableRepository."""
    with open_git(folder, *words) as out:
        return out.read(_CHUNK_BYTES).decode(errors="replace")
