"""Answers of an erasure on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.columns import render_fields


class ErasureCounts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Erased rows by kind; `projects` is how many projects were deleted, with those joined to one; `keys` is how many keys were
    deleted with them.
    """

    observations: int
    turns: int
    entities: int
    events: int
    sessions: int
    jobs: int
    runs: int
    receipts: int
    projects: int = 0
    keys: int = 0


class SessionErasureQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """With `dryRun=true` nothing is deleted: the answer says what would be."""

    id: str
    dry_run: bool = False


class SessionErasureCounts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Rows by kind that go with a session."""

    observations: int
    vectors: int
    turns: int
    events: int
    jobs: int
    runs: int
    receipts: int


class DeletedSessionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What went with the session, or with `dryRun` what would go. `merged` are the numbers of observations that hold texts of other
    sessions, too, and hinder it.
    """

    session_id: UUID
    counts: SessionErasureCounts
    merged: list[int]
    deleted: bool


class PurgedProjectOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The project stays; its memory is erased."""

    project_id: UUID
    counts: ErasureCounts
    purged: bool = True


class DeletedProjectOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The project is deleted."""

    project_id: UUID
    counts: ErasureCounts
    deleted: bool = True


class DeletedTeamOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The team is deleted, with the key of the request."""

    team_id: UUID
    counts: ErasureCounts
    deleted: bool = True


def render_erasure(sentence: str, counts: msgspec.Struct) -> str:
    """The sentence, and below it how many rows of each kind were deleted."""
    fields: dict[str, int] = msgspec.to_builtins(counts)
    return f"{sentence}\n{render_fields(*fields.items())}"
