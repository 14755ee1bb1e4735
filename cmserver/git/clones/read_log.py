"""Reads what a hook client sends of `git log` and `git diff-tree`, whose fields end with NUL. What cannot be read says nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from time import time

from cmserver.base.text import storable
from cmserver.git.clones.model import AUTHOR_MOST, HASH_CHARS, PATH_MOST, ChangeKind, CommitChanges

_KINDS: dict[str, ChangeKind] = {"A": "A", "M": "M", "T": "M", "D": "D", "R": "R"}
_LEFT = "<"
_TIME = re.compile(r"-?[0-9]{1,15}")


def read_log(text: bytes) -> list[CommitChanges] | None:
    """The commits of `git log --raw -z --left-right --format=%m%x00%H%x00%an%x00%at%x00`, in their order; None for another text.

    A file's name can be anything but NUL. So it is never looked for where a commit begins: each entry says how many names follow.
    """
    commits: list[CommitChanges] = []
    fields = map(_decode, text.split(b"\0"))
    for field in fields:
        entry = field.strip("\n")
        if entry.startswith(":") and commits:
            commits[-1].files.extend(_read_entry(entry, fields))
        elif entry:
            commit, author, at = next(fields, ""), next(fields, ""), next(fields, "")
            if entry not in {_LEFT, ">"} or not commit.isalnum() or not _TIME.fullmatch(at):
                return None
            written_at = int(at) if 0 < int(at) <= time() else 0  # one that is dated later than now is younger than nothing
            commits.append(
                CommitChanges(
                    commit=commit[:HASH_CHARS], author=author[:AUTHOR_MOST], at=written_at, is_gone=entry == _LEFT, files=[]
                )
            )
    return commits


def _decode(field: bytes) -> str:
    return storable(field.decode(errors="replace"))


def _read_entry(entry: str, fields: Iterator[str]) -> Iterator[tuple[ChangeKind, str, str, str]]:
    """`:100644 100644 4c1e… 5d2f… M`, whose names are the next fields."""
    head, _, status = entry.rpartition(" ")
    status = status[:1]
    path = next(fields, "")
    to = next(fields, "") if status in {"R", "C"} else ""
    if status == "C":
        status, path, to = "A", to, ""
    kind = _KINDS.get(status)
    if kind is not None and 0 < len(path) <= PATH_MOST and len(to) <= PATH_MOST:
        yield kind, path, to, head.rpartition(" ")[2][:HASH_CHARS]


def read_diff(text: bytes) -> dict[str, str]:
    """Path -> A, M or D, of `git diff-tree -r -z --no-renames --name-status`."""
    fields = map(_decode, text.split(b"\0"))
    return {path: _KINDS.get(status[:1], "M") for status, path in zip(fields, fields, strict=False) if status}
