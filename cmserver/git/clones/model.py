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
    files: list[tuple[ChangeKind, str, str]]
    """Kind, path and new path."""


CommitState = Literal["open", "merged", "gone", "branch_gone"]
"""On a branch that is not merged, merged by a squash, a rebase or a pick, in no history any more, or that with its branch."""


class CommitPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a commit is that is neither in the history of what the clone has checked out, nor in that of its trunk.

    `branch` is the one by which it was found, empty where that has no name; `tip` is that one's last commit.
    """

    state: CommitState
    branch: str
    tip: str


CommitPlaces = Mapping[str, CommitPlace]
"""By the first digits of the hash. A commit that is not there is merged, or unknown."""


class SaidAt(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked out when a turn ended, as its last event says it."""

    turn_id: UUID
    branch: str
    commit: str


class Clone(msgspec.Struct, frozen=True, kw_only=True):
    """A clone or a work tree."""

    clone_id: UUID
    head: str
    changes: dict[str, list[CommittedChange]]
    places: dict[str, CommitPlace]
    updated_at: datetime
