"""Clones, and what commits did to their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

COMMITS_MOST, PATHS_MOST = 500, 2_000
"""Of more commits between two starts nothing is said; of more files the ones that were changed last are kept."""
EVENTS_MOST = 20
PATH_MOST, AUTHOR_MOST, HASH_CHARS = 1_000, 60, 12

ChangeKind = Literal["A", "M", "D", "R"]
"""A file was added, modified, deleted, or renamed, as git calls it."""


class CommittedChange(msgspec.Struct, frozen=True, array_like=True):
    """What a commit did to a file. `at` is its author's time, in seconds since 1970. `to` is the new path of a renamed file."""

    kind: ChangeKind
    commit: str
    author: str
    at: int
    to: str = ""


CommittedChanges = Mapping[str, Sequence[CommittedChange]]
"""By path, the oldest first."""


class CommitChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit did. `at` is in seconds since 1970, 0 for one that is dated later than now.

    `is_gone` is whether the clone no longer has it in its history.
    """

    commit: str
    author: str
    at: int
    is_gone: bool
    files: list[tuple[ChangeKind, str, str, str]]
    """Kind, path, new path, and the first digits of the new content's hash."""


CommitPlaces = Mapping[str, Sequence[str]]
"""By the first digits of the hash of a commit that is not merged, the branches that have it. Of any other nothing is said."""


class SaidAt(msgspec.Struct, frozen=True, kw_only=True):
    """The branch that was checked out in all of a turn, and the commit at its end. `branch` is empty for none."""

    turn_id: UUID
    branch: str
    commit: str


class Clone(msgspec.Struct, frozen=True, kw_only=True):
    """A clone or a work tree."""

    clone_id: UUID
    head: str
    changes: dict[str, list[CommittedChange]]
    places: dict[str, list[str]]
    updated_at: datetime
