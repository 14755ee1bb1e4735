"""What an answer holds: as it was read, and as it may be stored. And summaries as text, and keys."""

from __future__ import annotations

import hashlib
from uuid import UUID

import msgspec

from cmserver.providers.model import DraftObservation, DraftSummary, Skip

SUMMARY_FIELDS = ("request", "investigated", "learned", "completed", "next_steps", "notes")


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What will be stored of an answer. A job that no observation cites was skipped; `reasons` says why if the answer did."""

    observations: list[SourcedObservation]
    summary: DraftSummary | None
    reasons: dict[UUID, str]
    dropped: int = 0
    """Observations that were empty in every field, or came after the first MAX_OBSERVATIONS."""


class SourcedObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A normalised observation and the jobs whose events it cites (in the prompt's order, at least one)."""

    draft: DraftObservation
    job_ids: list[UUID]


class ParsedAnswer(msgspec.Struct, kw_only=True):
    """What a reader found in an answer: not yet bounded, cleaned or checked.

    The `events` of an observation and the `event` of a skip mark are references as written ("e1, e2", "[E1-E4]"); a skip mark
    without one is about every event.
    """

    observations: list[DraftObservation] = []
    summaries: list[DraftSummary] = []
    skipped: list[Skip] = []
    is_explicitly_empty: bool = False
    """The answer held an empty list of observations."""

    @property
    def has_content(self) -> bool:
        return bool(self.observations or self.summaries or self.skipped or self.is_explicitly_empty)

    def add(self, other: ParsedAnswer) -> None:
        self.observations += other.observations
        self.summaries += other.summaries
        self.skipped += other.skipped
        self.is_explicitly_empty = self.is_explicitly_empty or other.is_explicitly_empty


def summary_text(summary: DraftSummary) -> str:
    """The six fields as one text with their names."""
    fields = [(name.replace("_", " ").capitalize(), getattr(summary, name)) for name in SUMMARY_FIELDS]
    return "\n\n".join(f"{label}: {text}" for label, text in fields if text)


def fingerprint(value: object) -> str:
    """Key of a normalised observation or summary: equal content gives the same key."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
