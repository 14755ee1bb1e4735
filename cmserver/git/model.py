"""Commits and documents of a repository, as they are taken over into the memory."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

COMMIT, DOCUMENT = "commit", "document"
"""What lines call a row of origin `git`; its `caller_type`."""
KEY = "git"
"""In the metadata of such a row: the hash of the commit, or `document:` and a path. Its generation key is `git:` and the same."""
BODY_MOST = 4_000
"""The most characters that are kept of a commit's body."""
FILES_MOST = 50
AUTHOR_MOST = 100


class CommitMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, redacted. `files` are the first ones that it changed, of `file_count`."""

    hash: str
    subject: str
    body: str
    author: str
    files: list[str]
    file_count: int
    authored_at: datetime


class RepositoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A text that the repository keeps for its readers, redacted. `blob` is git's id of what stands in it."""

    path: str
    blob: str
    text: str


class StoredDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was taken over, and the blob that was read."""

    id: UUID
    path: str
    blob: str


class KnownCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that was taken over, by its number."""

    number: int
    authored_at: datetime


class SkippedCommit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A commit that cannot be stored. `hash` is its own; `reason` is a sentence."""

    hash: str
    reason: str


class HistoryCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How much of its repository's history a project has."""

    commits: int
    newest_at: datetime | None
