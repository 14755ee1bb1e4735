"""Usage of the month, its cost, and the budgets for it, over HTTP."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects
from cmserver.access.budgets.model import Period
from cmserver.access.model import Principal
from cmserver.base.http.operation import TextAnswer, delete, get, put
from cmserver.base.http.wire import answer, caller, db, dependency, query, read
from cmserver.base.money import Usd
from cmserver.base.text import Key, matching
from cmserver.calls import repository as calls
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ops.spending.budgets import remove_budget, set_budget
from cmserver.ops.spending.report import read_usage, usage_csv
from cmserver.ops.spending.wire import BudgetsOut, DeletedBudgetOut, OneBudgetOut, UsageOut, budget_out

_CSV = TextAnswer("text/csv", "The rows as a table, with `format=csv`.")

By = Annotated[
    str,
    matching(
        r"^(?:project|model|day)(?:,(?:project|model|day)){0,2}$",
        "Expected project, model or day, or several of them with commas between",
    ),
]
"""The columns that rows are split by, separated by commas."""


class UsageQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`by` is what splits the provider calls of the last `days` (with today), or of the month so far: `project`, `model` or `day`,
    or several with commas between. Without it they are one row.

    `format` is `csv` for these rows alone, as a table for spreadsheets.
    """

    by: By | None = None
    days: Annotated[int, Meta(ge=1, le=366)] | None = None
    format: Literal["json", "csv"] | None = None


async def get_usage(request: Request) -> Response:
    """The team's usage of this month, and its cost.

    A key that is bound to a project sees its own requests and events, with those of the keys it was rotated from, and its project's
    calls of providers.
    """
    principal = await caller(request, Principal)
    usage_query = query(request, UsageQuery)
    columns = tuple(usage_query.by.split(",")) if usage_query.by else ()
    async with db(request).tenant(principal.team_id) as conn:
        usage = await read_usage(
            conn,
            principal,
            columns=columns,
            days=usage_query.days,
            with_rows=bool(columns or usage_query.days or usage_query.format),
        )
    if usage_query.format == "csv":
        return Response(usage_csv(usage, columns), media_type="text/csv")
    return answer(usage)


class BudgetsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`project` selects the budgets that count that project's calls: its own and its team's."""

    project: str | None = None


class BudgetIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PUT /v1/budgets. Without a project it is the whole team's; `maxTokens` or `maxUsd` is required."""

    period: Period
    project_id: Key | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000_000_000_000)] | None = None
    max_usd: Usd | None = None


class OneBudgetQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The budget of a period and a project; without a project the team's."""

    period: Period
    project: str | None = None


async def get_budgets(request: Request) -> Response:
    """Budgets for providers, and what is spent of them in this day or month (UTC).

    A key that is bound to a project sees its project's budgets, and of its team's the cap and the state.
    """
    principal = await caller(request, Principal)
    name = query(request, BudgetsQuery).project
    async with db(request).tenant(principal.team_id) as conn:
        project_id = principal.project_id if name is None else (await projects.require_project(conn, principal, name)).id
        statuses = await calls.budget_statuses(conn, principal.team_id, project_id=project_id)
    return answer(BudgetsOut(budgets=[budget_out(status, principal) for status in statuses]))


async def put_budget(request: Request) -> Response:
    """Set the budget of the team or a project for a day or a month. Jobs that wait for a budget are tried at once."""
    principal = await caller(request, Principal)
    body = await read(request, BudgetIn)
    max_usd = None if body.max_usd is None else Decimal(body.max_usd)

    status, is_new = await set_budget(
        db(request),
        dependency(request, JobNotifier),
        principal,
        body.project_id,
        body.period,
        max_tokens=body.max_tokens,
        max_usd=max_usd,
    )
    return answer(OneBudgetOut(budget=budget_out(status, principal)), 201 if is_new else 200)


async def delete_budget(request: Request) -> Response:
    """Delete a budget. Jobs that wait for a budget are tried at once."""
    principal = await caller(request, Principal)
    budget = query(request, OneBudgetQuery)
    await remove_budget(db(request), dependency(request, JobNotifier), principal, budget.project, budget.period)
    return answer(DeletedBudgetOut(deleted=True))


routes = [
    get("/v1/usage", get_usage, "jobs:read", (UsageOut, _CSV), query=UsageQuery),
    get("/v1/budgets", get_budgets, "jobs:read", BudgetsOut, query=BudgetsQuery),
    put("/v1/budgets", put_budget, "admin", {200: OneBudgetOut, 201: OneBudgetOut}, body=BudgetIn),
    delete("/v1/budgets", delete_budget, "admin", DeletedBudgetOut, query=OneBudgetQuery),
]
