"""What a reader finds in an answer."""

from __future__ import annotations

import msgspec

from cmserver.models.providers.model import DraftObservation, DraftSummary, Skip


class ParsedAnswer(msgspec.Struct, kw_only=True):
    """The content of an answer in the order in which it stands there.

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
