"""Tells what was done to an observation by what a change has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from cmserver.observations.history.model import Act, Action, Measure, PastLabels, Snapshot
from cmserver.observations.model import MIN_INSTRUCTION_IMPORTANCE, Observation

_TEXTS = ("title", "subtitle", "narrative", "facts", "content")
_LABELS = ("type", "importance", "scope", "state", "stale", "expires_at")
Changed = Mapping[str, tuple[object, object]]
"""Names of fields that a change has changed, with what they were and became. Of texts only the names count."""


def find_changed(before: Snapshot | Observation, after: Snapshot | Observation) -> Changed:
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in (*_TEXTS, *_LABELS)}
    return {name: (was, became) for name, (was, became) in pairs.items() if was != became}


def find_past_changed(past: Sequence[PastLabels], version: int, now: Observation) -> Changed:
    """The same of a change that was undone. `past` are the changes of the observation in their order."""
    place = next((place for place, change in enumerate(past) if change.version == version - 1), None)
    if place is None:
        return {}
    change, later = past[place], past[place + 1 :]
    became = {name: next((row.labels[name] for row in later if name in row.labels), getattr(now, name)) for name in _LABELS}
    changed = {name: (change.labels[name], became[name]) for name in _LABELS if name in change.labels}
    return {**changed, "content": (None, None)} if change.is_worded else changed


def tell_act(action: Action, changed: Changed, measured_by: Measure | None, at: datetime) -> Act:
    """What was done by a change `at` that time."""
    if action == "merged":
        return "merged"
    if action == "promoted":
        ended = changed.get("expires_at", (None, None))[0]
        ended = datetime.fromisoformat(ended) if isinstance(ended, str) else ended
        return "brought_back" if isinstance(ended, datetime) and ended <= at else "kept"
    return "repeated" if measured_by is not None else _tell_correction(changed)


def _tell_correction(changed: Changed) -> Act:
    if not changed.keys().isdisjoint(_TEXTS):
        return "edited"
    if changed.get("stale", (None, None))[1] is not None:
        return "stale"
    importance = changed.get("importance", (None, None))[1]
    if isinstance(importance, float) and importance > MIN_INSTRUCTION_IMPORTANCE:
        return "on_top"
    if "state" in changed:
        return _STATES.get(changed["state"], "edited")
    if "scope" in changed:
        return "shared" if changed["scope"][1] == "team" else "unshared"
    return "edited"


_STATES: dict[tuple[object, object], Act] = {
    **dict.fromkeys([(None, "done"), ("open", "done"), ("dropped", "done")], "done"),
    **dict.fromkeys([(None, "dropped"), ("open", "dropped"), ("done", "dropped")], "dropped"),
    (None, "open"): "opened",
    ("done", "open"): "reopened",
    ("dropped", "open"): "reopened",
    ("dropped", None): "holds",
    ("done", None): "settled",
    ("open", None): "settled",
}
