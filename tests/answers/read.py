"""What will be stored of the text of an answer, apart from the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cmserver.answers.parse import parse
from cmserver.models.providers.model import DraftObservation, DraftSummary, event_tag
from cmserver.observations.normalise import normalise_answer


class ReadAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An observation without `events` belongs to all of them. Reasons are by tag."""

    observations: list[DraftObservation] = []
    summary: DraftSummary | None = None
    reasons: dict[str, str] = {}
    dropped: int = 0

    def cites(self, tag: str) -> list[DraftObservation]:
        return [draft for draft in self.observations if tag in draft.events]


def read_answer(text: str, events: int | Mapping[str, Sequence[str]]) -> ReadAnswer:
    """The answer about so many events, or about those with the files that they changed. ProviderError when nothing can be read."""
    changed = dict[str, Sequence[str]].fromkeys(map(event_tag, range(events)), ()) if isinstance(events, int) else events
    drafts = parse(text, len(changed))
    clean = normalise_answer(drafts, changed)
    marks = {mark.event: mark.reason for mark in clean.skipped}
    cited = {tag for draft in clean.observations for tag in draft.events}
    reasons = {tag: reason for tag in changed if tag not in cited and (reason := marks.get(tag) or marks.get(""))}
    for draft in clean.observations:
        draft.events = draft.events or list(changed)
    dropped = len(drafts.observations) - len(clean.observations)
    return ReadAnswer(observations=clean.observations, summary=clean.summary, reasons=reasons, dropped=dropped)
