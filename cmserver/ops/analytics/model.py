"""What was stored, shown and opened in some days, as rows."""

from __future__ import annotations

from datetime import date
from uuid import UUID

import msgspec


class StoredDay(msgspec.Struct, frozen=True, kw_only=True):
    """Observations made on a day."""

    day: date
    stored: int


class ShownDay(msgspec.Struct, frozen=True, kw_only=True):
    """What agents were shown on a day: receipts, lines in them, and their tokens."""

    day: date
    receipts: int
    lines: int
    tokens: int


class ShownTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Different observations that were shown, those of them that were opened since, and the sessions that were shown any."""

    shown: int
    opened: int


class ShownGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of an agent were shown; `agent` is its program, or `unknown`; `sessions` is how many sessions that were."""

    agent: str
    sessions: int
    receipts: int
    lines: int
    tokens: int


class ProjectUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A project's new observations, and what its sessions were shown; `sessions` is how many sessions that were."""

    project: str
    stored: int
    sessions: int
    lines: int
    tokens: int


class ShownObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that was shown often; `access_count` counts how often it was opened, ever."""

    id: UUID
    project_id: UUID
    number: int
    title: str | None
    type: str
    times: int
    access_count: int
