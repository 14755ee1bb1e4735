"""How far accesses are counted."""

from __future__ import annotations

import msgspec


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Places in the audit log, by the ids of its rows: all up to the first are counted; the last look went up to the second.

    `is_settled` when whatever was being written at that look has been written, or given up, so that no row up to there can follow.
    """

    counted_to: int
    seen_to: int
    is_settled: bool
