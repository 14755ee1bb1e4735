"""What a replay would remember otherwise. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec

from cmserver.base.ids import new_id
from cmserver.replays.model import ErasedRows, NewLine, ReplayedRow, ReplayedTurn


class FoundDifferences(msgspec.Struct, kw_only=True):
    """The lines of some sessions, and how many rows have none."""

    lines: list[NewLine] = msgspec.field(default_factory=list[NewLine])
    kept: int = 0
    by_people: int = 0
    """Rows that people have changed, merged, ended or deleted since: they are not compared."""

    def add(self, other: FoundDifferences) -> None:
        """Take what was found of other sessions."""
        self.lines += other.lines
        self.kept += other.kept
        self.by_people += other.by_people


def find_differences(
    stored: Sequence[ReplayedRow], made: Sequence[ReplayedRow], erased: Iterable[ErasedRows], turns: Sequence[ReplayedTurn]
) -> FoundDifferences:
    """Compare what is stored of some sessions with what the replay made of the same jobs.

    A row is found again by the key of what was worded, then by its kind and the jobs that it was drawn of. A summary also tells
    what people have changed before it: where they have, it is not compared either.
    """
    pairs, lost, new = _pair(stored, made)
    gone = _Gone(erased)
    touched = {row.server_session_id for row in stored if not row.is_untouched}
    compared: list[NewLine | bool | None] = []
    for before, after in pairs:
        is_by_people = not before.is_untouched or (before.kind == "summary" and before.server_session_id in touched)
        compared.append(None if is_by_people else before.told == after.told or _line(before, after))
    compared += [None if gone.takes(row) else _line(None, row) for row in new]
    compared += [_line(row, None) if row.is_untouched else None for row in lost]
    compared += [turn.before == turn.after or _turn_line(turn) for turn in turns]
    return FoundDifferences(
        lines=[it for it in compared if isinstance(it, NewLine)], kept=compared.count(True), by_people=compared.count(None)
    )


def _pair(
    stored: Sequence[ReplayedRow], made: Sequence[ReplayedRow]
) -> tuple[list[tuple[ReplayedRow, ReplayedRow]], list[ReplayedRow], list[ReplayedRow]]:
    """Rows that are each other's, then those that are only stored, and those that are only made."""
    by_key = {row.generation_key: row for row in stored if row.generation_key}
    pairs = [(by_key[row.generation_key], row) for row in made if row.generation_key in by_key]
    paired = {row.id for pair in pairs for row in pair}
    waiting: dict[tuple[str, UUID], list[ReplayedRow]] = {}
    for row in stored:
        if row.id not in paired:
            for job_id in row.job_ids:
                waiting.setdefault((row.kind, job_id), []).append(row)
    new: list[ReplayedRow] = []
    for row in made:
        if row.id in paired:
            continue
        of_jobs = [it for job_id in row.job_ids for it in waiting.get((row.kind, job_id), ()) if it.id not in paired]
        before = max(of_jobs, key=lambda it: _likeness(it, row), default=None)
        if before is None:
            new.append(row)
        else:
            pairs.append((before, row))
            paired.add(before.id)
    return pairs, [row for row in stored if row.id not in paired], new


def _likeness(stored: ReplayedRow, made: ReplayedRow) -> tuple[bool, bool, int, int]:
    """How likely one is the other: what says the same, then what is of the same type, then what was drawn of the same."""
    same = stored.told.title == made.told.title
    return same, stored.told.type == made.told.type, len({*stored.job_ids} & {*made.job_ids}), -stored.number


class _Gone:
    """Rows that were deleted, of which no more is known than what they were drawn of."""

    def __init__(self, erased: Iterable[ErasedRows]) -> None:
        self._of_job: dict[UUID, list[int]] = {}
        for rows in erased:
            left = [rows.count]
            for job_id in rows.job_ids:
                self._of_job.setdefault(job_id, left)

    def takes(self, row: ReplayedRow) -> bool:
        """Whether the row may be one of them; each of them is one row."""
        left = next((left for job_id in row.job_ids if (left := self._of_job.get(job_id)) and left[0]), None)
        if left is None:
            return False
        left[0] -= 1
        return True


def _line(before: ReplayedRow | None, after: ReplayedRow | None) -> NewLine:
    row = before or after
    assert row is not None
    return NewLine(
        id=new_id(),
        server_session_id=row.server_session_id,
        turn_id=row.turn_id,
        observation_id=before.id if before else None,
        difference="new" if before is None else "lost" if after is None else "reworded",
        what=row.kind,
        version=before.version if before else None,
        before=msgspec.to_builtins(before.told) if before else None,
        after=msgspec.to_builtins(after.told) if after else None,
        new_row=after.row if after else None,
    )


def _turn_line(turn: ReplayedTurn) -> NewLine:
    return NewLine(
        id=new_id(),
        server_session_id=turn.server_session_id,
        turn_id=turn.id,
        observation_id=None,
        difference="reworded",
        what="turn",
        before=msgspec.to_builtins(turn.before),
        after=msgspec.to_builtins(turn.after),
    )
