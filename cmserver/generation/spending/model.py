"""What was spent on providers, and what is left of the budgets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.access.budgets.model import Budget

WARN_SHARE = 0.8

State = Literal["open", "warned", "exhausted"]


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of providers with what they took. One that is under way counts with its estimate."""

    calls: int
    failed_calls: int
    """Those that gave no answer that could be used, and those whose end nobody heard."""
    unpriced_calls: int
    """Those with tokens whose price is not known: they are not in `cost_usd`."""
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Decimal


class Row(Spent, frozen=True, kw_only=True):
    """What was spent on one thing; None for what was not asked apart."""

    day: date | None
    project_id: UUID | None
    project: str | None
    """Its canonical id; None also when it was deleted."""
    provider: str | None
    model: str | None


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of a project that are under way are thought to take."""

    project_id: UUID
    calls: int
    tokens: int
    cost_usd: Decimal


class Standing(Budget, frozen=True, kw_only=True):
    """A budget, and how it stands in the present period."""

    project: str | None
    """The canonical id of its project."""
    spent_tokens: int
    spent_usd: Decimal
    paid_calls: int
    """Those with tokens that brought an answer, or may still."""
    resets_at: datetime
    seconds_left: float
    """Until then."""
    warned: bool
    """It was said in this period that most is spent."""
    told_exhausted: bool
    """It was said in this period that all is spent."""

    @property
    def share(self) -> float:
        """How much of it is spent, 1 for all; the greater one where it has two caps. More than 1 when the last calls went over."""
        tokens = self.spent_tokens / self.max_tokens if self.max_tokens else 0.0
        money = float(self.spent_usd / self.max_usd) if self.max_usd else 0.0
        return max(tokens, money)

    def without(self, calls: Iterable[UnderWay]) -> Standing:
        """As if those calls that count for it had not been made."""
        ours = [one for one in calls if self.project_id in (None, one.project_id)]
        return msgspec.structs.replace(
            self,
            spent_tokens=self.spent_tokens - sum(one.tokens for one in ours),
            spent_usd=self.spent_usd - sum(one.cost_usd for one in ours),
        )

    def expecting(self, calls: Iterable[UnderWay]) -> Standing:
        """As if those calls took what others have taken on average, where that is more than they were thought to take."""
        ours = [one for one in calls if self.project_id in (None, one.project_id)]
        count, before = sum(one.calls for one in ours), self.without(ours)
        others = self.paid_calls - count
        if others <= 0:
            return self
        return msgspec.structs.replace(
            self,
            spent_tokens=max(self.spent_tokens, before.spent_tokens + before.spent_tokens * count // others),
            spent_usd=max(self.spent_usd, before.spent_usd + before.spent_usd * count / others),
        )

    @property
    def state(self) -> State:
        return "exhausted" if self.share >= 1 else "warned" if self.share >= WARN_SHARE else "open"
