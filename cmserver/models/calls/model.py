"""Stored answers, pauses of providers, spending, and the status of budgets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.models.budgets.model import Budget


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's answer that was paid for and not yet applied; `job_ids` in the order of the prompt's tags."""

    id: UUID
    job_ids: list[UUID]
    answer: str
    provider: str
    model: str
    input_tokens: int
    output_tokens: int


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which no worker calls the provider, and why."""

    provider: str
    reason: str
    message: str
    paused_at: datetime
    until_at: datetime
    seconds_left: float


class AnswerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of models in the last 24 hours: those that could be used, and those that were refused, empty or unreadable.

    `unanswered` are the calls that brought none: out of time, out of reach, without credit.
    """

    usable: int
    unusable: int
    unanswered: int

    @property
    def is_poor(self) -> bool:
        """Whether at least a fifth of them could not be used."""
        return self.unusable > 0 and self.unusable * 5 >= self.usable + self.unusable

    @property
    def calls(self) -> int:
        return self.usable + self.unusable + self.unanswered

    @property
    def is_silent(self) -> bool:
        """Whether at least a fifth of the calls brought no answer."""
        return self.unanswered > 0 and self.unanswered * 5 >= self.calls


class LastError(msgspec.Struct, frozen=True, kw_only=True):
    """The newest call of the last 24 hours that failed, or whose answer could not be used.

    `answered_by` is the provider whose answer could be used since then, its own before another one; None while there is none.
    """

    provider: str
    model: str
    reason: str
    message: str
    at: datetime
    answered_by: str | None


class ModelHealth(AnswerCounts, frozen=True, kw_only=True):
    """How the models do: their answers, what they took today (UTC), and the last error. A pending call counts with its estimate."""

    tokens_today: int
    cost_usd_today: Decimal
    unpriced_calls_today: int
    """Calls with tokens of unknown price, which are not in `cost_usd_today`."""
    last_error: LastError | None
    providers: list[str]
    """Whose the calls of the last 24 hours are, sorted."""


WARN_SHARE = 0.8

State = Literal["open", "warned", "exhausted"]


class SpendingTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Provider calls and what they took. A pending call counts with its estimate."""

    calls: int
    failed_calls: int
    """Calls without a usable answer, and those lost with their worker."""
    unpriced_calls: int
    """Calls with tokens of unknown price, which are not in `cost_usd`."""
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Decimal


class SpendingRow(SpendingTotals, frozen=True, kw_only=True):
    """Spending of one group; None for what it is not grouped by."""

    day: date | None
    project_id: UUID | None
    project: str | None
    """The canonical id of the project; None also when it was deleted."""
    provider: str | None
    model: str | None


class PendingCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Estimates of a project's pending calls."""

    project_id: UUID
    calls: int
    tokens: int
    cost_usd: Decimal


class BudgetStatus(Budget, frozen=True, kw_only=True):
    """A budget and its spending in the present period."""

    project: str | None
    """The canonical id of its project."""
    spent_tokens: int
    spent_usd: Decimal
    paid_calls: int
    """Calls with tokens that brought an answer or may still."""
    resets_at: datetime
    seconds_left: float
    """Seconds until it resets."""
    warned: bool
    """The warning of this period was logged."""
    exhaustion_reported: bool
    """The exhaustion in this period was logged."""

    @property
    def share(self) -> float:
        """Spent share, the greater one of two caps; more than 1 when the last calls went over."""
        tokens = self.spent_tokens / self.max_tokens if self.max_tokens else 0.0
        money = float(self.spent_usd / self.max_usd) if self.max_usd else 0.0
        return max(tokens, money)

    def without(self, calls: Iterable[PendingCalls]) -> BudgetStatus:
        """The status without the estimates of those calls that count for this budget."""
        counted = [call for call in calls if self.project_id in (None, call.project_id)]
        return msgspec.structs.replace(
            self,
            spent_tokens=self.spent_tokens - sum(call.tokens for call in counted),
            spent_usd=self.spent_usd - sum(call.cost_usd for call in counted),
        )

    def expecting(self, calls: Iterable[PendingCalls]) -> BudgetStatus:
        """The status if those calls take the average of the others, where that is more than their estimate."""
        counted = [call for call in calls if self.project_id in (None, call.project_id)]
        count, before = sum(call.calls for call in counted), self.without(counted)
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
