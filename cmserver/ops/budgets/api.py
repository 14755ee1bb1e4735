"""Budgets over HTTP."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects
from cmserver.access.budgets import manage
from cmserver.access.budgets.model import Change, Period
from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query, read
from cmserver.base.money import Usd
from cmserver.base.sql import Conn
from cmserver.base.text import Key
from cmserver.generation import repository as outbox
from cmserver.generation.bell import Bell
from cmserver.generation.spending import repository as spending
from cmserver.generation.spending.model import Standing
from cmserver.ops.budgets.wire import BudgetOut, budget_out


class BudgetsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`project` shows those under which that project's calls fall: its own, and its team's."""

    project: str | None = None


class BudgetIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PUT /v1/budgets. Without a project it is the whole team's; one of `maxTokens` and `maxUsd` must be there."""

    period: Period
    project_id: Key | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000_000_000_000)] | None = None
    max_usd: Usd | None = None


class WhichQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which budget: its period, and its project; without a project the team's."""

    period: Period
    project: str | None = None


class BudgetsOut(msgspec.Struct, frozen=True, kw_only=True):
    """The team's own first, then by project."""

    budgets: list[BudgetOut]


class OneBudgetOut(msgspec.Struct, frozen=True, kw_only=True):
    """One budget."""

    budget: BudgetOut


class DeletedOut(msgspec.Struct, frozen=True, kw_only=True):
    """It is gone."""

    deleted: bool


async def get_budgets(request: Request) -> Response:
    """What may be spent on providers, and what is spent of it in this day or month (UTC).

    A key that is bound to a project sees its project's budgets, and of its team's the cap and the state.
    """
    who = await caller(request, Principal)
    asked = query(request, BudgetsQuery)
    async with db(request).tenant(who.team_id) as conn:
        project_id = who.project_id if asked.project is None else (await projects.one(conn, who, asked.project)).id
        standings = await spending.standings(conn, who.team_id, project_id=project_id)
    return answer(BudgetsOut(budgets=[budget_out(one, who) for one in standings]))


async def put_budget(request: Request) -> Response:
    """Say what may be spent in a day or a month by the team, or by one of its projects. What waits for money is tried at once."""
    who = await caller(request, Principal)
    asked = await read(request, BudgetIn)
    change = Change(
        period=asked.period, max_tokens=asked.max_tokens, max_usd=None if asked.max_usd is None else Decimal(asked.max_usd)
    )

    async def put(conn: Conn) -> tuple[Standing, bool]:
        budget, is_new = await manage.put(conn, who, asked.project_id, change)
        standings = await spending.standings(conn, who.team_id, project_id=budget.project_id)
        return next(one for one in standings if one.id == budget.id), is_new

    standing, is_new = await db(request).in_tenant(who.team_id, put)
    await _go_on(request, who)
    return answer(OneBudgetOut(budget=budget_out(standing, who)), 201 if is_new else 200)


async def delete_budget(request: Request) -> Response:
    """Let there be no cap any more. What waits for money is tried at once."""
    who = await caller(request, Principal)
    asked = query(request, WhichQuery)

    await db(request).in_tenant(who.team_id, lambda conn: manage.remove(conn, who, asked.project, asked.period))
    await _go_on(request, who)
    return answer(DeletedOut(deleted=True))


async def _go_on(request: Request, who: Principal) -> None:
    """In a transaction of its own: whoever erases the project holds its lanes, and waits for its budgets."""
    await db(request).in_tenant(who.team_id, lambda conn: outbox.unhold_for_budget(conn, who.team_id))
    cast("Bell", request.app.state.bell).ring()


routes = [
    Operation("GET", "/v1/budgets", get_budgets, scope="jobs:read", query=BudgetsQuery, answers={200: BudgetsOut}),
    Operation("PUT", "/v1/budgets", put_budget, scope="admin", body=BudgetIn, answers={200: OneBudgetOut, 201: OneBudgetOut}),
    Operation("DELETE", "/v1/budgets", delete_budget, scope="admin", query=WhichQuery, answers={200: DeletedOut}),
]
