"""The relevance score of an observation for a session that starts: a sum of weighted parts.

docs/why/context.md says how the weights were chosen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.models.providers.model import KINDS
from cmserver.observations.wire import type_shown
from cmserver.recall.model import IndexRow, ScoredRow

_TYPE_WEIGHTS: Mapping[str, float] = {
    **{name: kind.weight for name, kind in KINDS.items()},
    "summary": 0.4,
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
    importance: float = 0.8
    """Of one that counts 1; one that counts .5 gets nothing."""
    open: float = 0.3
    type: Mapping[str, float] = msgspec.field(default_factory=lambda: _TYPE_WEIGHTS)


WEIGHTS = Weights()


class SessionFocus:
    """What a session that starts is about: the newest of its project, the files under change, and the session it continues."""

    def __init__(self, newest_at: Iterable[datetime], changed_files: Sequence[str], continued_session_id: UUID | None) -> None:
        self._newest_at = sorted(newest_at)
        self._changed_files: dict[str, list[str]] = {}
        self._folders: set[str] = set()
        for path in changed_files:
            *folders, name = _split_path(path) or [""]
            if name:
                self._changed_files.setdefault(name, []).append(path)
            self._folders.update(folders[-1:])
        self.continued_session_id = continued_session_id

    def count_younger(self, row: IndexRow) -> int:
        """How many of the newest observations are younger than the row."""
        return len(self._newest_at) - bisect_right(self._newest_at, row.created_at)

    def find_changed_file(self, row: IndexRow) -> str | None:
        """The first file of the row that the branch changes, by its path in the branch; None without one."""
        return self._find_changed(row.files)

    def is_about(self, files: Sequence[str]) -> bool:
        """Whether the branch changes one of the files."""
        return self._find_changed(files) is not None

    def _find_changed(self, files: Sequence[str]) -> str | None:
        for path in files:
            parts = _split_path(path)
            for changed in self._changed_files.get(parts[-1], ()) if parts else ():
                changed_parts = _split_path(changed)
                shorter = min(len(parts), len(changed_parts))
                # A name alone is any file's; as a whole path it is one in the root.
                if parts[-shorter:] == changed_parts[-shorter:] and (shorter > 1 or len(changed_parts) == 1):
                    return changed
        return None

    def is_near(self, row: IndexRow) -> bool:
        """Whether a file of the row is in a folder of the same name as a file that the branch changes."""
        return any(len(parts) > 1 and parts[-2] in self._folders for parts in map(_split_path, row.files))


def score_row(row: IndexRow, focus: SessionFocus, weights: Weights = WEIGHTS) -> ScoredRow:
    """The relevance score of the row, and the parts of it that are not 0."""
    file = focus.find_changed_file(row)
    is_continued = focus.continued_session_id and row.server_session_id == focus.continued_session_id
    weighted = {
        "recency": weights.recency * 0.5 ** (focus.count_younger(row) / weights.half),
        "type": weights.type.get(type_shown(row.kind, row.type), 0.0),
        "importance": weights.importance * max(row.importance - 0.5, 0) * 2,
        "open": weights.open if row.state == "open" else 0.0,
        "by hand": weights.by_hand if row.kind == "manual" else 0.0,
        "files": weights.files if file else 0.0,
        "folders": weights.folders if file is None and focus.is_near(row) else 0.0,
        "session": weights.session if is_continued else 0.0,
        "team": weights.team if row.scope == "team" else 0.0,
    }
    parts = {name: rounded for name, part in weighted.items() if part and (rounded := round(part, 3))}
    return ScoredRow(row=row, score=round(sum(parts.values()), 3), parts=parts, file=file)


def _split_path(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in {"", "."}]
