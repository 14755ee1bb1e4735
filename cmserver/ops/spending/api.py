"""Usage of the month, its cost, and the budgets for it, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects, verb
from cmserver.access.model import Principal
from cmserver.access.verb import VerbCall, command, option
from cmserver.base.columns import Columns
from cmserver.base.db import Db
from cmserver.base.http.operation import TextAnswer, get
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.base.money import Usd
from cmserver.base.text import Key, matching
from cmserver.generation.job_notifier import JobNotifier
from cmserver.models.budgets.model import Period
from cmserver.models.calls import repository as calls
from cmserver.ops.spending.budgets import remove_budget, set_budget
from cmserver.ops.spending.report import read_usage, usage_csv
from cmserver.ops.spending.wire import BudgetOut, BudgetsOut, DeletedBudgetOut, OneBudgetOut, UsageOut, budget_out

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


_COLUMNS = Columns(
    BudgetOut,
    "whose, period, state, spent, tokens=spent_tokens, of=max_tokens, USD=spent_usd, of USD=max_usd, resets",
    whose=lambda budget: budget.project or "the team",
    spent=lambda budget: None if budget.share is None else f"{budget.share:.0%}",
)
_PERIOD = option("--period", "A calendar day or month in UTC.", default="month")


def render_budgets(budgets: Sequence[BudgetOut]) -> str:
    """A table of budgets."""
    return _COLUMNS.table(budgets, empty="There are no budgets: nothing is capped.", shrink=("whose",))


@command("budgets list", lambda page, _: render_budgets(page.budgets))
@option("--project", "Only the budgets that apply to this project.")
@verb.get("/v1/budgets", "jobs:read")
async def get_budgets(call: VerbCall, given: BudgetsQuery) -> BudgetsOut:
    """List the budgets and what is spent of them.

    Of this day or month (UTC). A key that is bound to a project sees its own budgets, and of its team's the cap and the state.
    """
    principal, name = call.principal, given.project
    async with call.read() as conn:
        project_id = principal.project_id if name is None else (await projects.require_project(conn, principal, name)).id
        statuses = await calls.budget_statuses(conn, principal.team_id, project_id=project_id)
    return BudgetsOut(budgets=[budget_out(status, principal) for status in statuses])


@command("budgets set", lambda result, _: render_budgets([result.budget]))
@_PERIOD
@option("--project", "The project; without it, the whole team.", field="project_id")
@option("--tokens", "The maximum number of tokens, of all kinds together.", field="max_tokens")
@option("--usd", "The maximum in US dollars: 12.50.", field="max_usd", metavar="AMOUNT")
@verb.put("/v1/budgets", "admin")
async def put_budget(call: VerbCall, given: BudgetIn) -> tuple[OneBudgetOut, bool]:
    """Set a budget. It replaces the one of that period; waiting jobs are tried at once."""
    status, is_new = await set_budget(
        call.dependency(Db),
        call.dependency(JobNotifier),
        call.principal,
        given.project_id,
        given.period,
        max_tokens=given.max_tokens,
        max_usd=None if given.max_usd is None else Decimal(given.max_usd),
    )
    return OneBudgetOut(budget=budget_out(status, call.principal)), is_new


@command("budgets remove", lambda _, typed: f"Removed the {typed['period']} budget of {typed['project'] or 'the team'}.")
@_PERIOD
@option("--project", "The project; without it, the whole team.")
@verb.delete("/v1/budgets", "admin")
async def delete_budget(call: VerbCall, given: OneBudgetQuery) -> DeletedBudgetOut:
    """Remove a budget: nothing is capped any more.

    Jobs that wait for a budget are tried at once.
    """
    await remove_budget(call.dependency(Db), call.dependency(JobNotifier), call.principal, given.project, given.period)
    return DeletedBudgetOut(deleted=True)


routes = [
    get("/v1/usage", get_usage, "jobs:read", (UsageOut, _CSV), query=UsageQuery),
    get_budgets,
    put_budget,
    delete_budget,
]
