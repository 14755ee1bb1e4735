"""Makes one observation of a turn's work, or one for each of its commits."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.base.text import shorten
from cmserver.models.providers.model import DraftObservation

_MAX_FACTS, _MAX_FILES, _MAX_MESSAGE = 10, 20, 2_000
_MERGED_TYPES = ("bugfix", "feature", "refactor", "decision", "change", "discovery")
"""The type of a merged observation is the first of these that one of its parts has."""


def gather_work(work: Sequence[DraftObservation], commits: Sequence[DraftObservation], said: str) -> list[DraftObservation]:
    """The commits, each with the work that is nearest to it by its files; without a commit the work as one.

    The last of them says what the agent `said`.
    """
    ranks = {name: rank for rank, name in enumerate(_MERGED_TYPES)}
    gathered = [*commits] or sorted(work, key=lambda draft: (ranks.get(draft.type, -1), -len(draft.files_modified)))[:1]
    for draft in work:
        if draft is not gathered[0]:
            names = {_name(path) for path in draft.files_modified}
            _absorb(max(reversed(gathered), key=lambda commit: len(names & set(map(_name, commit.files_modified)))), draft)
    if gathered:
        last = gathered[-1]
        last.narrative = "\n\n".join(filter(None, [last.narrative, shorten(said, _MAX_MESSAGE)]))
    return gathered


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _absorb(main: DraftObservation, other: DraftObservation) -> None:
    """Add what another draft of the same piece of work knows."""
    if other.title and other.title not in (main.title or ""):
        main.facts.append(shorten(other.title, 160))
    main.facts = list(dict.fromkeys([*main.facts, *other.facts]))[:_MAX_FACTS]
    if other.type == "bugfix" and main.type == "change":
        main.type = "bugfix"
    main.concepts = list(dict.fromkeys([*main.concepts, *other.concepts]))
    main.files_read = list(dict.fromkeys([*main.files_read, *other.files_read]))[:_MAX_FILES]
    main.files_modified = list(dict.fromkeys([*main.files_modified, *other.files_modified]))
    main.events = [*main.events, *(tag for tag in other.events if tag not in main.events)]
    main.closes = list(dict.fromkeys([*main.closes, *other.closes]))
