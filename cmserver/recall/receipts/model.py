"""Receipts: what of the memory was shown, to whom, why, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.recall.model import Reason


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One text that was handed out. `left_out` are the most useful of those that had no room, at most 100 of `left_out_count`."""

    id: UUID
    team_id: UUID
    project_id: UUID
    server_session_id: UUID | None
    reason: Reason
    platform_source: str | None
    numbers: list[int]
    summary_numbers: list[int]
    left_out: list[int]
    left_out_count: int
    tokens: int
    budget_tokens: int
    chars: int
    details: dict[str, object]
    created_at: datetime


class NewReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt about to be written. `details` hold numbers and words of ours, never the text of an observation or a prompt."""

    reason: Reason
    server_session_id: UUID | None = None
    platform_source: str | None = None
    numbers: list[int] = []
    summary_numbers: list[int] = []
    left_out: list[int] = []
    left_out_count: int = 0
    tokens: int = 0
    budget_tokens: int = 0
    chars: int = 0
    details: Mapping[str, object] = {}
