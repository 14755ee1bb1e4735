"""How useful an observation is to a session that starts: a sum of parts, each with a weight that can be named.

docs/why/context.md says how the weights were chosen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.observations.wire import type_shown
from cmserver.recall.index.model import Judged, Row

_BY_TYPE: Mapping[str, float] = {
    "decision": 0.5,
    "security_alert": 0.5,
    "bugfix": 0.4,
    "discovery": 0.4,
    "security_note": 0.4,
    "summary": 0.4,
    "feature": 0.3,
    "refactor": 0.2,
    "sensitive": 0.2,
    "change": 0.1,
}


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """What each part counts for. `half` is after how many younger observations recency counts half."""

    recency: float = 0.5
    half: int = 25
    files: float = 0.8
    folders: float = 0.3
    session: float = 0.3
    team: float = 0.2
    by_hand: float = 0.3
    type: Mapping[str, float] = msgspec.field(default_factory=lambda: _BY_TYPE)


WEIGHTS = Weights()


class Situation:
    """What a session that starts is about: the newest of its project, the files under change, and the session it continues."""

    def __init__(self, moments: Iterable[datetime], changed_files: Sequence[str], continued: UUID | None) -> None:
        self._moments = sorted(moments)
        self._changed = _by_name(changed_files)
        self._folders = {parts[-2] for path in changed_files if len(parts := _parts(path)) > 1}
        self.continued = continued

    def younger(self, row: Row) -> int:
        """How many of the newest came after it."""
        return len(self._moments) - bisect_right(self._moments, row.created_at)

    def file(self, row: Row) -> str | None:
        """The first of its files that is under change, as the branch calls it."""
        for path in row.files:
            parts = _parts(path)
            for changed in self._changed.get(parts[-1], ()) if parts else ():
                of_changed = _parts(changed)
                shorter = min(len(parts), len(of_changed))
                # A name alone is any file's; as a whole path it is one in the root.
                if parts[-shorter:] == of_changed[-shorter:] and (shorter > 1 or len(of_changed) == 1):
                    return changed
        return None

    def is_near(self, row: Row) -> bool:
        """Whether one of its files is in a folder of the same name as one under change."""
        return any(len(parts) > 1 and parts[-2] in self._folders for parts in map(_parts, row.files))


def judge(row: Row, situation: Situation, weights: Weights = WEIGHTS) -> Judged:
    """How useful it is, and by what; parts that are nothing are left out."""
    file = situation.file(row)
    told = {
        "recency": weights.recency * 0.5 ** (situation.younger(row) / weights.half),
        "type": weights.type.get(type_shown(row.kind, row.type), 0.0),
        "by hand": weights.by_hand if row.kind == "manual" else 0.0,
        "files": weights.files if file else 0.0,
        "folders": weights.folders if file is None and situation.is_near(row) else 0.0,
        "session": weights.session if situation.continued and row.server_session_id == situation.continued else 0.0,
        "team": weights.team if row.scope == "team" else 0.0,
    }
    parts = {name: rounded for name, part in told.items() if part and (rounded := round(part, 3))}
    return Judged(row=row, usefulness=round(sum(parts.values()), 3), parts=parts, file=file)


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in {"", "."}]


def _by_name(paths: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        if parts := _parts(path):
            found.setdefault(parts[-1], []).append(path)
    return found
