"""Budgets for calls of providers."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec

Period = Literal["day", "month"]
"""A calendar day or month in UTC."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a team or project may spend in a period; when it is spent, generation waits."""

    id: UUID
    team_id: UUID
    project_id: UUID | None
    """None for the whole team."""
    period: Period
    max_tokens: int | None
    max_usd: Decimal | None
    """At least one of the two is set; with both, the one that is reached first counts."""
