"""A budget on the wire, as its own routes and `GET /v1/usage` show it."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.budgets.model import Period
from cmserver.access.model import Principal
from cmserver.base.ids import epoch_ms
from cmserver.base.money import usd
from cmserver.generation.spending.model import Standing, State


class BudgetOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A budget and how it stands. Without a project it is the whole team's; amounts of money are decimal text, in US dollars.

    `share` is how much is spent, 1 for all. A key that is bound to a project is not told what others have spent: of the team's
    budget it sees cap and state.
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


def budget_out(one: Standing, who: Principal) -> BudgetOut:
    """The budget as it is shown to the principal."""
    is_shown = who.sees(one.project_id) if one.project_id is not None else who.project_id is None
    return BudgetOut(
        project_id=one.project_id,
        project=one.project,
        period=one.period,
        max_tokens=one.max_tokens,
        max_usd=None if one.max_usd is None else usd(one.max_usd),
        spent_tokens=one.spent_tokens if is_shown else None,
        spent_usd=usd(one.spent_usd) if is_shown else None,
        share=round(one.share, 4) if is_shown else None,
        state=one.state,
        resets_at_epoch=epoch_ms(one.resets_at),
    )
