"""A repository's history on the wire."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.text import FIELD_MOST, Key, Text, matching
from cmserver.git.model import SkippedCommit

COMMITS_MOST, DOCUMENTS_MOST = 500, 20
"""How many one request may bring."""
PATH_MOST = 1_000

Hash = Annotated[str, matching(r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$", "A hash of git has 40 or 64 digits of 0-9a-f")]
FilePath = Annotated[Text, Meta(min_length=1, max_length=PATH_MOST)]


class CommitIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A commit: `hash` is git's id of it; `subject` is the first line of its message; `body` is the rest; `author` is a name,
    without an address.

    `authoredAtEpoch` is when it was written, in milliseconds; one before 1970 or in the future is skipped. `files` are paths in the
    repository that it changed, at most 50; `fileCount` is how many it changed.
    """

    hash: Hash
    subject: Annotated[Text, Meta(min_length=1, max_length=1_000)]
    body: Annotated[Text, Meta(max_length=FIELD_MOST)] = ""
    author: Annotated[Text, Meta(max_length=200)] = ""
    authored_at_epoch: int
    files: Annotated[list[FilePath], Meta(max_length=50)] = []
    file_count: Annotated[int, Meta(ge=0, le=10_000_000)] = 0


class DocumentIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A document of the repository: `blob` is git's id of what stands in it; `text` is that."""

    path: FilePath
    blob: Hash
    text: Annotated[Text, Meta(min_length=1, max_length=FIELD_MOST)]


class HistoryIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A part of a repository's history, in any order. The project is made where there is none of that name.

    `goneDocuments` are paths of documents that the repository has no longer.
    """

    project_id: Key | None = None
    commits: Annotated[list[CommitIn], Meta(max_length=COMMITS_MOST)] = []
    documents: Annotated[list[DocumentIn], Meta(max_length=DOCUMENTS_MOST)] = []
    gone_documents: Annotated[list[FilePath], Meta(max_length=COMMITS_MOST)] = []


class HistoryImportOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What became of it: `taken` is how many commits were stored; `known` is how many were there already; `documents` is how many
    were stored or read again.

    `skipped` are commits that cannot be stored, with the reason.
    """

    project_id: UUID
    taken: int
    known: int
    documents: int
    skipped: list[SkippedCommit]


class RepositoryHistoryQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`project` may be left out by a key that is bound to one."""

    project: Key | None = None


class KnownDocumentOut(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was taken over: `blob` is git's id of what was read."""

    path: str
    blob: str


class RepositoryHistoryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a project has of its repository's history. `newestAtEpoch` is when its newest commit was written, or null."""

    project_id: UUID
    commits: int
    newest_at_epoch: int | None
    documents: list[KnownDocumentOut]


class RemovedHistoryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`removed` is how many commits and documents were deleted."""

    project_id: UUID
    removed: int
