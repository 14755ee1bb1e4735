"""Merges, relations between observations, and suggestions to merge."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal, Protocol
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.errors import Invalid
from cmserver.observations.history.model import Act, Measure, MergeStrategy
from cmserver.observations.model import Observation

SOURCES_MOST = 50
"""How many observations one request may merge into another."""
DEPTH_MOST = 3
"""Over how many relations related observations are looked for."""

SUPERSEDES = "SUPERSEDES"
"""From a merged observation to each of its sources."""
DERIVED_FROM = "DERIVED_FROM"
"""From an observation that the steward derived to each of those that say so."""
SYSTEM_RELATIONSHIPS = frozenset({SUPERSEDES, DERIVED_FROM})
"""Made by the system only."""

Relationship = Annotated[str, Meta(pattern="^[A-Z][A-Z0-9_]{0,63}$")]
Strength = Annotated[float, Meta(ge=0, le=1)]
SuggestionStatus = Literal["open", "accepted", "dismissed"]
SuggestionReason = Literal["same", "related", "contradicts"]
SkipReason = Literal["itself", "missing", "other_project", "superseded", "expired", "summary"]
"""Why a source was not merged."""


WordedBy = Literal["rules", "model"]
ModelRefusal = Literal[
    "fact_missing", "fact_new", "texts_changed", "too_long", "unusable_answer", "provider_failed", "provider_paused", "budget_spent"
]
"""Why a merge has no words of a model though the project wants them."""


class SkippedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source, as it was named, that was not merged."""

    name: int | str
    reason: SkipReason


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """The merged observation, and what became of the sources that were named."""

    observation: Observation
    merged: list[Observation]
    skipped: list[SkippedSource]
    strategy: MergeStrategy
    worded_by: WordedBy = "rules"
    model_refused: ModelRefusal | None = None


class ExpectedState(msgspec.Struct, frozen=True):
    """What an observation is after the change that is to be undone, so that no later one is undone in its place."""

    version: int
    expired: bool = False


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """An observation as it was before its last change, the numbers of those that are shown again, and what was undone."""

    observation: Observation
    restored: list[int]
    act: Act


class MergeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A merge in the log: the texts of the target before it and after it. An undone merge has no texts before."""

    id: UUID
    project_id: UUID
    observation_id: UUID
    number: int
    version: int
    source_ids: list[UUID]
    strategy: MergeStrategy
    similarity: float | None
    measured_by: Measure | None
    performed_by: str
    content_before: str | None
    content_after: str
    created_at: datetime
    undone_at: datetime | None


class NewRelation(msgspec.Struct, frozen=True, kw_only=True):
    """A relation about to be stored, between two observations of one team."""

    from_id: UUID
    from_project_id: UUID
    to_id: UUID
    to_project_id: UUID
    relationship: str
    strength: float
    context: str | None = None


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """A relation, with the numbers of both ends."""

    id: UUID
    from_id: UUID
    from_number: int
    to_id: UUID
    to_number: int
    relationship: str
    strength: float
    context: str | None
    created_at: datetime


class NewSuggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A pair about to be suggested, in either order."""

    left_id: UUID
    right_id: UUID
    similarity: float
    measured_by: Literal["vector", "words"]
    reason: SuggestionReason


class Pair(Protocol):
    """Two observations by their numbers."""

    @property
    def left_number(self) -> int: ...

    @property
    def right_number(self) -> int: ...


def list_others(pairs: Iterable[Pair], number: int) -> list[int]:
    """The numbers with which that number is paired."""
    return [pair.right_number if pair.left_number == number else pair.left_number for pair in pairs]


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A pair that seems to say the same (`same`; less alike: `related`), or says another fact in nearly the same words."""

    id: UUID
    project_id: UUID
    left_id: UUID
    left_number: int
    left_title: str | None
    right_id: UUID
    right_number: int
    right_title: str | None
    similarity: float
    measured_by: Literal["vector", "words"]
    reason: SuggestionReason
    status: SuggestionStatus
    created_at: datetime
    resolved_at: datetime | None
    resolved_by: str | None

    def merge_order(self, into: int | None = None) -> tuple[int, int]:
        """The number of the one that stays, `into` or else the older, and that of the other. Invalid for a number of neither."""
        older, newer = min(self.left_number, self.right_number), max(self.left_number, self.right_number)
        if into not in (None, older, newer):
            raise Invalid.at("$.into", f"#{into} is not of this pair. Send {older} or {newer}.")
        return (newer, older) if into == newer else (older, newer)
