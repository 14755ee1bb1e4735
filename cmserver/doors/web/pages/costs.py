"""Costs: tokens and money by project, model and day, and the budgets that limit them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from cmserver.base.errors import Invalid
from cmserver.base.money import Usd
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects
from cmserver.doors.web.visit import Visit
from cmserver.generation.job_notifier import JobNotifier
from cmserver.models.budgets.model import Period
from cmserver.models.calls import repository as calls
from cmserver.ops.spending.budgets import remove_budget, set_budget
from cmserver.ops.spending.report import read_usage, usage_csv
from cmserver.ops.spending.wire import UsageOut, UsageRowOut

_SHOWN_PROJECTS = 50
_PERIODS = (7, 30, 90)
Days = Annotated[int, Meta(ge=1, le=366)]


class CostFilters(msgspec.Struct, frozen=True, kw_only=True):
    """How many days, with today."""

    days: Days = 30


class BudgetForm(msgspec.Struct, frozen=True, kw_only=True):
    """A budget of the team, or of a project; the amounts as they are typed."""

    period: Period
    project: str | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000_000_000_000)] | None = None
    max_usd: Usd | None = None


class BudgetName(msgspec.Struct, frozen=True, kw_only=True):
    """Which budget."""

    period: Period
    project: str | None = None


class CallTotals(msgspec.Struct, kw_only=True):
    """Sums of provider calls."""

    calls: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced_calls: int = 0

    def add(self, row: UsageRowOut) -> None:
        self.calls += row.calls
        self.tokens += row.input_tokens + row.output_tokens + row.cache_read_tokens + row.cache_write_tokens
        self.cost += Decimal(row.cost_usd)
        self.unpriced_calls += row.unpriced_calls


async def get_costs(visit: Visit) -> Response:
    """Tokens and money by day, model and project."""
    query = visit.query(CostFilters)
    principal = visit.principal
    async with visit.tenant() as conn:
        usage = await read_usage(conn, principal, columns=("day", "model", "project"), days=query.days, with_rows=True)
        budgets = await calls.budget_statuses(conn, principal.team_id, project_id=principal.project_id)
        projects = await list_projects(conn, principal)
    rows = [] if usage.rows is UNSET else usage.rows
    by_day, by_model, by_project = _sum_rows(rows)
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=back) for back in range(query.days - 1, -1, -1)]
    total = CallTotals()
    for row in rows:
        total.add(row)
    return visit.render(
        "costs.html",
        title="Costs",
        days=query.days,
        periods=_PERIODS,
        usage=usage,
        today=by_day.get(today, CallTotals()),
        total=total,
        by_day=[(day, by_day.get(day, CallTotals())) for day in days],
        by_model=_largest(by_model),
        by_project=_largest(by_project),
        is_priced=total.cost > 0,
        projects=projects,
        budgets=[budget for budget in budgets if budget.state != "open"],
    )


def _sum_rows(rows: list[UsageRowOut]) -> tuple[dict[date, CallTotals], dict[str, CallTotals], dict[str, CallTotals]]:
    """The rows by day, by provider and model, and by project."""
    by_day: dict[date, CallTotals] = {}
    by_model: dict[str, CallTotals] = {}
    by_project: dict[str, CallTotals] = {}
    for row in rows:
        assert row.day is not UNSET
        by_day.setdefault(row.day, CallTotals()).add(row)
        by_model.setdefault(f"{row.provider}: {row.model}", CallTotals()).add(row)
        by_project.setdefault(str(row.project or "Deleted projects"), CallTotals()).add(row)
    return by_day, by_model, by_project


def _largest(groups: dict[str, CallTotals]) -> list[tuple[str, CallTotals]]:
    return sorted(groups.items(), key=lambda item: (-item[1].cost, -item[1].tokens, item[0]))[:_SHOWN_PROJECTS]


async def get_csv(visit: Visit) -> Response:
    """The provider calls by day, project and model, as a file for spreadsheets."""
    query = visit.query(CostFilters)
    columns = ("day", "project", "model")
    async with visit.tenant() as conn:
        usage: UsageOut = await read_usage(conn, visit.principal, columns=columns, days=query.days, with_rows=True)
    return visit.download(usage_csv(usage, columns).encode(), name=f"costs-{query.days}-days.csv", media_type="text/csv")


async def get_budgets(visit: Visit) -> Response:
    """Budgets and what is left of them."""
    principal = visit.principal
    async with visit.tenant() as conn:
        budgets = await calls.budget_statuses(conn, principal.team_id, project_id=principal.project_id)
        projects = await list_projects(conn, principal)
    return visit.render("budgets.html", title="Budgets", budgets=budgets, projects=projects, sees_team=principal.project_id is None)


async def post_budget(visit: Visit) -> Response:
    """Set or change a budget."""
    form = await visit.form(BudgetForm)
    if form.max_tokens is None and form.max_usd is None:
        raise Invalid.at("$.max_usd", "Write an amount of dollars, a number of tokens, or both.")
    status, is_new = await set_budget(
        visit.db,
        visit.dependency(JobNotifier),
        visit.principal,
        form.project,
        form.period,
        max_tokens=form.max_tokens,
        max_usd=None if form.max_usd is None else Decimal(form.max_usd),
    )
    whose = status.project or "the team"
    return visit.redirect(
        "/ui/costs/budgets", f"The budget of {whose} is {'set' if is_new else 'changed'}; what waited for it goes on."
    )


async def post_removal(visit: Visit) -> Response:
    """Remove a budget."""
    form = await visit.form(BudgetName)
    await remove_budget(visit.db, visit.dependency(JobNotifier), visit.principal, form.project, form.period)
    return visit.redirect("/ui/costs/budgets", "The budget is removed; what waited for it goes on.")


routes = [
    Page("GET", "/ui/costs", get_costs, scope="jobs:read"),
    Page("GET", "/ui/costs/calls.csv", get_csv, scope="jobs:read"),
    Page("GET", "/ui/costs/budgets", get_budgets, scope="jobs:read"),
    Page("POST", "/ui/costs/budgets", post_budget, scope="admin", form_of=get_budgets),
    Page("POST", "/ui/costs/budgets/remove", post_removal, scope="admin", form_of=get_budgets),
]
