"""What was stored, shown and opened, on the wire."""

from __future__ import annotations

from datetime import date
from uuid import UUID

import msgspec

from cmserver.ops.analytics.model import ProjectUsage, ShownGroup


class AnalyticsDayOut(msgspec.Struct, frozen=True, kw_only=True):
    """A day (UTC): new observations; receipts of what agents were shown, lines in them, and their tokens."""

    day: date
    stored: int
    receipts: int
    lines: int
    tokens: int


class AnalyticsAgentOut(ShownGroup, frozen=True, kw_only=True):
    """What the sessions of an agent were shown."""


class AnalyticsProjectOut(ProjectUsage, frozen=True, kw_only=True):
    """A project's new observations, and what its sessions were shown."""


class ShownObservationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation that was shown often: `times` is how often sessions were shown it in these days. `accessCount` is how often it
    was opened, ever.
    """

    id: UUID
    number: int
    title: str | None
    type: str
    times: int
    access_count: int


class RecallFunnelOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What clients of Contextify did: searches, those with a hit, memories offered, and those that were kept."""

    recall_attempts: int
    recall_hits: int
    store_opportunities: int
    store_actions: int


class AnalyticsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The last `days` (UTC, with today).

    `shown` is how many different observations agents were shown; `byDay` are the days on which anything happened; `opened` is how
    many of the shown ones were read whole, or shown because a prompt or a file is about them. Merged ones count as long as they are
    stored.
    """

    days: int
    project: str | None
    stored: int
    shown: int
    opened: int
    receipts: int
    lines: int
    tokens: int
    recall: RecallFunnelOut
    by_day: list[AnalyticsDayOut]
    by_project: list[AnalyticsProjectOut]
    by_agent: list[AnalyticsAgentOut]
    top: list[ShownObservationOut]
