"""How much may be spent on providers."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec

Period = Literal["day", "month"]
"""Of the calendar, in UTC."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How much a team, or one of its projects, may spend in a period. Set by its admins; when it is spent, generation waits."""

    id: UUID
    team_id: UUID
    project_id: UUID | None
    """None is the whole team."""
    period: Period
    max_tokens: int | None
    max_usd: Decimal | None
    """At least one of the two is there; where both are, the one that is reached first counts."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a budget shall be."""

    period: Period
    max_tokens: int | None
    max_usd: Decimal | None
