"""Budgets, and the usage and cost of a month, on the wire."""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.access.model import Principal
from cmserver.base.money import usd
from cmserver.base.structs import reshape
from cmserver.models.budgets.model import Period
from cmserver.models.calls.model import BudgetStatus, State


class BudgetOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A budget and its status. Without a project it is the whole team's; money is decimal text, in US dollars.

    `share` is the spent part of the cap that is nearer, 1 for all of it. `state` is `open` below a share of 0.8, `warned` from
    there on, and `exhausted` from 1 on, when generation waits. A key that is bound to a project sees only cap and state of the
    team's budget: the rest is null.
    """

    project_id: UUID | None
    project: str | None
    period: Period
    max_tokens: int | None
    max_usd: str | None
    spent_tokens: int | None
    spent_usd: str | None
    share: float | None
    state: State
    resets_at_epoch: int

    def describe(self) -> str:
        """What is spent of which budget, for a line of a command's output."""
        spent = list[str]()
        if self.max_usd and self.spent_usd is not None:
            spent.append(f"${self.spent_usd} of ${self.max_usd}")
        if self.max_tokens and self.spent_tokens is not None:
            spent.append(f"{self.spent_tokens:,} of {self.max_tokens:,} tokens")
        state = {"open": "open", "warned": "nearly spent", "exhausted": "spent"}[self.state]
        whose = f"the project {self.project}" if self.project else "the team"
        return f"budget of {whose} by {self.period}: {' and '.join(spent) or state}"


def budget_out(budget: BudgetStatus, principal: Principal) -> BudgetOut:
    """Return the budget without the fields that the principal may not see."""
    may_see = principal.sees(budget.project_id) if budget.project_id is not None else principal.project_id is None
    return reshape(
        budget,
        BudgetOut,
        max_usd=None if budget.max_usd is None else usd(budget.max_usd),
        spent_tokens=budget.spent_tokens if may_see else None,
        spent_usd=usd(budget.spent_usd) if may_see else None,
        share=round(budget.share, 4) if may_see else None,
        state=budget.state,
    )


class BudgetsOut(msgspec.Struct, frozen=True, kw_only=True):
    """The team's own first, then by project."""

    budgets: list[BudgetOut]


class OneBudgetOut(msgspec.Struct, frozen=True, kw_only=True):
    """One budget."""

    budget: BudgetOut


class DeletedBudgetOut(msgspec.Struct, frozen=True, kw_only=True):
    """The budget is deleted."""

    deleted: bool


class CallsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Calls of providers. Running calls count with their estimate. Money is decimal text, in US dollars.

    `unpricedCalls` is how many calls have no known price; `costUsd` is what the others cost, as decimal text.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: str
    failed_calls: int
    unpriced_calls: int


class AmountsOut(CallsOut, rename="camel", frozen=True, kw_only=True):
    """What was used: `requests` is how many requests were accepted; `events` is how many events were stored; `providerCalls` is how
    many calls of providers there were. The tokens are what providers reported, of which `stewardTokens` are the steward's.
    """

    requests: int
    events: int
    provider_calls: int
    steward_tokens: int


class UsageRowOut(CallsOut, rename="camel", frozen=True, kw_only=True):
    """Calls of one day, project, provider and model, by the columns of `by`; `project` is its canonical id, or null when it was
    deleted.
    """

    day: date | UnsetType = UNSET
    project_id: UUID | UnsetType = UNSET
    project: str | UnsetType | None = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    calls: int


class LimitsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Limits of the key, and of all keys of its team together; null is no limit."""

    requests_per_minute: int | None
    events_per_month: int | None
    team_requests_per_minute: int | None
    team_events_per_month: int | None


class UsageOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The month so far (UTC), about a second old.

    `budgets` are those with 80 % or more spent. `rows` come with `by` or `days`, up to 5,000; `rowsAreCapped` says whether
    there are more.
    """

    since: datetime
    usage: AmountsOut
    limits: LimitsOut
    budgets: list[BudgetOut]
    rows: list[UsageRowOut] | UnsetType = UNSET
    rows_are_capped: bool | UnsetType = UNSET
