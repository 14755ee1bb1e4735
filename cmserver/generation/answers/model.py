"""What an answer comes to, once it is understood."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.providers.model import DraftObservation, DraftSummary

SUMMARY_FIELDS = ("request", "investigated", "learned", "completed", "next_steps", "notes")


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, understood. A job that no observation names was skipped; `reasons` says why where the provider did."""

    observations: list[Worded]
    summary: DraftSummary | None
    reasons: dict[UUID, str]
    dropped: int = 0
    """Observations that said nothing in any field, or stood behind a thousand others."""


class Worded(msgspec.Struct, frozen=True, kw_only=True):
    """An observation, normalised, and the jobs whose events it was drawn from (in the prompt's order, at least one)."""

    draft: DraftObservation
    job_ids: list[UUID]


class Heard(msgspec.Struct, kw_only=True):
    """What a reader found in an answer, as it was said: nothing is bounded, cleaned or checked yet.

    The `events` of an observation and the `event` of a skip mark are references in the answer's own words ("e1, e2", "[E1-E4]"); a
    skip mark without one is about every event.
    """

    observations: list[DraftObservation] = []
    summaries: list[DraftSummary] = []
    skipped: list[Skipped] = []
    nothing: bool = False
    """It said in so many words that there is nothing: an empty list of observations."""

    @property
    def anything(self) -> bool:
        return bool(self.observations or self.summaries or self.skipped or self.nothing)

    def add(self, other: Heard) -> None:
        self.observations += other.observations
        self.summaries += other.summaries
        self.skipped += other.skipped
        self.nothing = self.nothing or other.nothing


class Skipped(msgspec.Struct, kw_only=True):
    """A skip mark, as it was said."""

    event: str = ""
    reason: str = ""
