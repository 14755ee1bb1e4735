"""Versions of observations."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec

from cmserver.access.model import MergeStrategy
from cmserver.base.structs import reshape
from cmserver.observations.model import Observation, ObservationState, Scope, StaleMark

Action = Literal["corrected", "merged", "promoted"]
Act = Literal[
    "edited", "done", "dropped", "opened", "reopened", "holds", "settled", "on_top", "shared", "unshared", "stale", "repeated",
    "merged", "kept", "brought_back",
]  # fmt: skip
"""What was done, in particular."""
ACT_WORDS: dict[Act, str] = {
    "edited": "edited",
    "done": "marked done",
    "dropped": "marked as no longer holding",
    "opened": "marked open",
    "reopened": "opened again",
    "holds": "marked as holding again",
    "settled": "marked as nothing to be done",
    "on_top": "made a rule",
    "shared": "made for all projects of the team",
    "unshared": "made for its project alone",
    "stale": "marked stale",
    "repeated": "made to hold again",
    "merged": "merged with others",
    "kept": "kept for good",
    "brought_back": "brought back",
}
"""As a sentence about the observation ends: `#12 was …`."""
Measure = Literal["text", "vector", "words"]
"""How alike two observations are is told by their texts being the same, by their vectors, or by their words."""


SYSTEM = "system"
"""Who performs what happens by itself."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a change may change of an observation."""

    type: str
    scope: Scope
    title: str | None
    subtitle: str | None
    narrative: str | None
    facts: list[str] | None
    concepts: list[str] | None
    files_read: list[str] | None
    files_modified: list[str] | None
    content: str
    read_tokens: int | None
    importance: float
    caller_type: str | None
    metadata: dict[str, object]
    merged_from: list[UUID]
    ttl_seconds: int | None
    expires_at: datetime | None
    state: ObservationState | None
    closed_by: int | None
    closed_at: datetime | None
    stale: StaleMark | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and by the key of that actor, or `system`. The other fields are of merges."""

    action: Action
    performed_by: str
    source_ids: list[UUID] = []
    strategy: MergeStrategy | None = None
    similarity: float | None = None
    measured_by: Measure | None = None


class ObservationVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A change: the version that the observation got with it, and what it was before. An undone change has no `before`."""

    id: UUID
    project_id: UUID
    observation_id: UUID
    version: int
    action: Action
    before: Snapshot | None
    source_ids: list[UUID]
    strategy: MergeStrategy | None
    similarity: float | None
    measured_by: Measure | None
    performed_by: str
    created_at: datetime
    undone_at: datetime | None
    sources_purged_at: datetime | None = None
    """When the texts of a merge's sources went by retention; from then on it cannot be undone."""


VERSION_COLUMNS: LiteralString = (
    "id, project_id, observation_id, version, action, before, source_ids, strategy, similarity, measured_by, performed_by,"
    " created_at, undone_at, sources_purged_at"
)


class PastLabels(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of the version after `version` took the place of, without texts; whether it changed one of these, too."""

    version: int
    labels: dict[str, object]
    is_worded: bool


def take_snapshot(observation: Observation) -> Snapshot:
    return reshape(observation, Snapshot)


def restore(observation: Observation, before: Snapshot) -> Observation:
    """The observation as it was."""
    return msgspec.structs.replace(observation, **msgspec.structs.asdict(before))
