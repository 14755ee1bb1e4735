"""Asks the git repository of a file on this machine which commit a line, or the file, is of.

As with its history, nothing of the repository is run. So git does not look at the work tree, for which it would run filters: the
file is read here, and its line is looked for in the newest commit.
"""

from __future__ import annotations

import re
import secrets
from difflib import SequenceMatcher
from pathlib import Path

import msgspec

from cmserver.base.errors import NotFound
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.text import shorten, storable
from cmserver.client.git_history import GitOutput, UnreadableRepository, find_committed, find_head, open_git, run_git, split_fields

MAX_COMMITS = 5
"""How many of the newest commits of a file are told."""
_MAX_FILE_BYTES = 5_000_000
_MAX_COMPARED_LINES = 2_000
_MAX_BLAME_BYTES = 100_000
_CHUNK_BYTES = 65_536
_MAX_SHALLOW_BYTES = 1_000_000
_TEXT_CHARS, _SUBJECT_CHARS, _AUTHOR_CHARS = 2_000, 300, 100
_NAME_CHARS = 300
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ESCAPE = re.compile(rb"\\([abfnrtv\\\"]|[0-7]{3})")
_ESCAPED = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b"\\": 92, b'"': 34}


class NoSuchLine(NotFound):
    """The file or the line is not there."""


class RepositoryFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the work tree `top` of a repository. `path` is what git calls it; `blob` is None if HEAD lacks it."""

    file: Path
    top: Path
    path: str
    blob: str | None


class FileCommit(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A commit of a file, which was called `path` in it.

    `is_edge` is true where the clone's history begins with it, so that what it has may be older.
    """

    hash: str
    author: str
    authored_at_epoch: int
    subject: str
    path: str
    is_edge: bool = False


class FileLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file as it is now, and the commit that it is of; None where it is in no commit yet.

    `occurrences` is how often it stands in the file, blanks aside.
    """

    text: str
    occurrences: int
    commit: FileCommit | None


def find_file(file: Path) -> RepositoryFile:
    """The file in its repository. Raises NoSuchLine, NotFound outside of a repository, and UnreadableRepository."""
    shown = shorten(sanitize_line(str(file)), _NAME_CHARS)
    try:
        folder = _find_folder(file, shown)
    except OSError as error:
        raise NoSuchLine(f"{shown} cannot be read: {error.strerror or error}.") from error
    top = Path(run_git(folder, "rev-parse", "--show-toplevel").removesuffix("\n"))
    if not folder.is_relative_to(top):
        raise NotFound(f"{shown} is in no work tree of a git repository.")
    path = (folder / file.name).relative_to(top).as_posix()
    filtered = run_git(top, "--literal-pathspecs", "check-attr", "-z", "filter", "ident", "working-tree-encoding", "--", path)
    if any(value not in {"unspecified", "unset"} for value in filtered.split("\0")[2::3]):
        raise UnreadableRepository(f"{shown} is stored through a filter, which is not run: what git has of it is no text.")
    blob = None if find_head(top) is None else find_committed(top, path)
    return RepositoryFile(file=file, top=top, path=path, blob=blob)


def _find_folder(file: Path, shown: str) -> Path:
    if not file.is_file() or file.is_symlink():
        what = "is a link: name what it points to" if file.is_symlink() else "is a folder" if file.is_dir() else "is not there"
        raise NoSuchLine(f"{shown} {what}.")
    folder = file.parent.resolve()
    if storable(name := str(folder / file.name)) != name:
        raise NoSuchLine(f"{shown} has a name that is no UTF-8.")
    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        raise NotFound(f"{shown} is in no git repository.")
    return folder


def read_line(found: RepositoryFile, number: int) -> FileLine:
    """The line of that number, from 1, and its commit. Raises NoSuchLine and UnreadableRepository."""
    lines = _read_lines(found.file)
    if number > len(lines):
        count = f"{len(lines)} {'line' if len(lines) == 1 else 'lines'}"
        raise NoSuchLine(f"{sanitize_line(str(found.file))} has {count}, and no line {number}.")
    text = storable(lines[number - 1].decode(errors="replace"))
    committed = _find_committed_line(found, lines, number - 1)
    occurrences = [line.strip() for line in lines].count(lines[number - 1].strip())
    commit = None if committed is None else _blame(found, committed + 1)
    return FileLine(text=text[:_TEXT_CHARS], occurrences=occurrences, commit=commit)


def read_commits(found: RepositoryFile) -> list[FileCommit]:
    """The newest commits of the file, also of its names before, newest first. Raises UnreadableRepository."""
    edges = _read_edges(found.top)
    return [
        _make_commit(fields, next(iter(fields[4:]), found.path), edges)
        for fields in _read_log(found.top, "--follow", "-M", "--no-merges", f"--max-count={MAX_COMMITS}", "HEAD", "--", found.path)
    ]


def _read_log(top: Path, *words: str) -> list[list[str]]:
    """Of each commit its hash, author, time, subject and files. Authors are called as the commit says: a `.mailmap` is not read."""
    boundary = secrets.token_hex(16)  # no file can be called so
    quiet = ("--no-show-signature", "--no-ext-diff", "--no-textconv", "--no-notes", "--no-color", "--no-decorate", "--no-relative")
    layout = f"--format={boundary}%x00%H%x00%an%x00%at%x00%s%x00"
    commits: list[list[str]] = []
    with open_git(top, "--literal-pathspecs", "log", *quiet, "--name-only", "-z", layout, *words) as out:
        for field in split_fields(out):
            text = storable(field.decode(errors="replace")).lstrip("\n")
            if text == boundary:
                commits.append([])
            elif commits and (text or len(commits[-1]) < 4):
                commits[-1].append(text)
    return [fields for fields in commits if len(fields) >= 4]


def _read_lines(file: Path) -> list[bytes]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise NoSuchLine(f"{sanitize_line(str(file))} cannot be read: {error.strerror or error}.") from error
    return _split_lines(content, file)


def _split_lines(content: bytes, file: Path) -> list[bytes]:
    if len(content) > _MAX_FILE_BYTES or b"\0" in content:
        what = "is larger than 5 MB" if len(content) > _MAX_FILE_BYTES else "is no text"
        raise UnreadableRepository(f"{sanitize_line(str(file))} {what}.")
    lines = content.split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]


def _find_committed_line(found: RepositoryFile, lines: list[bytes], place: int) -> int | None:
    """Where the newest commit has the line that is in this place now; None where it has it not."""
    if found.blob is None:
        return None
    with open_git(found.top, "cat-file", "blob", found.blob) as out:
        before = _split_lines(_read(out, _MAX_FILE_BYTES + 1), found.file)
    head, shorter = 0, min(len(before), len(lines))
    while head < shorter and before[head] == lines[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == lines[-1 - tail]:
        tail += 1
    if place < head:
        return place
    if place >= len(lines) - tail:
        return place - len(lines) + len(before)
    old, new = before[head : len(before) - tail], lines[head : len(lines) - tail]
    if max(len(old), len(new)) > _MAX_COMPARED_LINES:
        raise UnreadableRepository(f"{sanitize_line(str(found.file))} changed too much since its newest commit to tell.")
    blocks = SequenceMatcher(None, old, new).get_matching_blocks()
    return next((head + it.a + place - head - it.b for it in blocks if it.b <= place - head < it.b + it.size), None)


def _blame(found: RepositoryFile, number: int) -> FileCommit:
    words = (
        "--porcelain",
        "-w",
        "--root",
        "--no-textconv",
        "--no-ignore-revs-file",
        "-L",
        f"{number},{number}",
        "HEAD",
        "--",
        found.path,
    )
    with open_git(found.top, "blame", *words) as out:
        said = _read(out, _MAX_BLAME_BYTES)
    first, *rest = said.split(b"\n")
    fields = {name: value for name, _, value in (line.partition(b" ") for line in rest if not line.startswith(b"\t"))}

    path = storable(_unquote(fields.get(b"filename", b"")).decode(errors="replace")) or found.path
    name = first.partition(b" ")[0].decode(errors="replace")
    told = _read_log(found.top, "--max-count=1", name, "--") if _HASH.fullmatch(name) else []
    return _make_commit(next(iter(told), [name, "", "", ""]), path, _read_edges(found.top))


def _read(out: GitOutput, most: int) -> bytes:
    """What git says, its beginning if it is longer."""
    said = b""
    while len(said) < most and (chunk := out.read(_CHUNK_BYTES)):
        said += chunk
    return said[:most]


def _unquote(name: bytes) -> bytes:
    """A file's name as git prints it, in quotation marks where it has strange signs."""
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name
    return _ESCAPE.sub(lambda it: bytes([_ESCAPED[it[1]] if it[1] in _ESCAPED else int(it[1], 8) & 255]), name[1:-1])


def _make_commit(fields: list[str], path: str, edges: set[str]) -> FileCommit:
    name, author, at, subject = fields[:4]
    if not _HASH.fullmatch(name):
        raise UnreadableRepository("git says of no commit what it is.")
    return FileCommit(
        hash=name,
        author=author.strip()[:_AUTHOR_CHARS],
        authored_at_epoch=int(at) * 1000 if re.fullmatch(r"-?\d{1,14}", at) else 0,
        subject=subject.strip()[:_SUBJECT_CHARS],
        path=path,
        is_edge=name in edges,
    )


def _read_edges(top: Path) -> set[str]:
    """The commits with which the history of a shallow clone begins; none of a whole one."""
    place = Path(top, run_git(top, "rev-parse", "--git-path", "shallow").removesuffix("\n"))
    try:
        with place.open("rb") as opened:
            return set(opened.read(_MAX_SHALLOW_BYTES).decode(errors="replace").split())
    except OSError:
        return set()
