"""Usage of the month, its cost, and the budgets for it, over HTTP."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects
from cmserver.access.budgets import manage
from cmserver.access.budgets.model import Period
from cmserver.access.limits import repository as limits
from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, dependency, query, read
from cmserver.base.money import Usd, usd
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import Key, matching
from cmserver.calls import repository as calls
from cmserver.calls.model import BudgetStatus, SpendingRow
from cmserver.generation import repository as outbox
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ops.spending.wire import (
    AmountsOut,
    BudgetsOut,
    DeletedBudgetOut,
    LimitsOut,
    OneBudgetOut,
    UsageOut,
    UsageRowOut,
    budget_out,
)

_MAX_ROWS = 5_000

By = Annotated[
    str,
    matching(
        r"^(?:project|model|day)(?:,(?:project|model|day)){0,2}$",
        "Expected project, model or day, or several of them with commas between",
    ),
]
"""The columns that rows are split by, separated by commas."""


class UsageQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`by` splits the provider calls of the last `days` (with today), or of the month so far; without `by` they are one row."""

    by: By | None = None
    days: Annotated[int, Meta(ge=1, le=366)] | None = None


async def get_usage(request: Request) -> Response:
    """The team's usage of this month, and its cost.

    A key that is bound to a project sees its own requests and events, with those of the keys it was rotated from, and its project's
    calls of providers.
    """
    principal = await caller(request, Principal)
    usage_query = query(request, UsageQuery)
    counted_key_id = (principal.counts_as or principal.key_id) if principal.project_id is not None else None
    columns = set(usage_query.by.split(",")) if usage_query.by else set[str]()
    async with db(request).tenant(principal.team_id) as conn:
        used = await limits.used(conn, principal.team_id, api_key_id=counted_key_id)
        since = used.since.astimezone(UTC)
        spent = await calls.spending_totals(conn, principal.team_id, since=since.date(), project_id=principal.project_id)
        statuses = await calls.budget_statuses(conn, principal.team_id, project_id=principal.project_id)
        rows = (
            await calls.spending_rows(
                conn,
                principal.team_id,
                project_id=principal.project_id,
                days=usage_query.days,
                by_project="project" in columns,
                by_model="model" in columns,
                by_day="day" in columns,
                limit=_MAX_ROWS + 1,
            )
            if usage_query.by or usage_query.days
            else None
        )
    usage = reshape(
        spent,
        AmountsOut,
        requests=used.requests,
        events=used.events,
        provider_calls=spent.calls,
        cost_usd=usd(spent.cost_usd),
    )
    return answer(
        UsageOut(
            since=since,
            usage=usage,
            limits=reshape(principal.limits, LimitsOut),
            budgets=[budget_out(status, principal) for status in statuses if status.state != "open"],
            rows=UNSET if rows is None else [_row_out(row) for row in rows[:_MAX_ROWS]],
            rows_are_capped=UNSET if rows is None else len(rows) > _MAX_ROWS,
        )
    )


def _row_out(row: SpendingRow) -> UsageRowOut:
    """Return the row on the wire, without the columns that rows are not split by."""
    return reshape(
        row,
        UsageRowOut,
        day=row.day or UNSET,
        project_id=row.project_id or UNSET,
        project=row.project if row.project_id else UNSET,
        provider=UNSET if row.provider is None else row.provider,
        model=UNSET if row.model is None else row.model,
        cost_usd=usd(row.cost_usd),
    )


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

    async def put(conn: Conn) -> tuple[BudgetStatus, bool]:
        budget, is_new = await manage.put(
            conn, principal, body.project_id, body.period, max_tokens=body.max_tokens, max_usd=max_usd
        )
        statuses = await calls.budget_statuses(conn, principal.team_id, project_id=budget.project_id)
        return next(status for status in statuses if status.id == budget.id), is_new

    status, is_new = await db(request).in_tenant(principal.team_id, put)
    await _resume_jobs(request, principal)
    return answer(OneBudgetOut(budget=budget_out(status, principal)), 201 if is_new else 200)


async def delete_budget(request: Request) -> Response:
    """Delete a budget. Jobs that wait for a budget are tried at once."""
    principal = await caller(request, Principal)
    budget = query(request, OneBudgetQuery)
    await db(request).in_tenant(principal.team_id, lambda conn: manage.remove(conn, principal, budget.project, budget.period))
    await _resume_jobs(request, principal)
    return answer(DeletedBudgetOut(deleted=True))


async def _resume_jobs(request: Request, principal: Principal) -> None:
    """Release the jobs in a separate transaction: an erasure of the project holds its lanes and waits for its budgets."""
    await db(request).in_tenant(principal.team_id, lambda conn: outbox.unhold_for_budget(conn, principal.team_id))
    dependency(request, JobNotifier).notify_due()


routes = [
    Operation("GET", "/v1/usage", get_usage, scope="jobs:read", query=UsageQuery, answers={200: UsageOut}),
    Operation("GET", "/v1/budgets", get_budgets, scope="jobs:read", query=BudgetsQuery, answers={200: BudgetsOut}),
    Operation("PUT", "/v1/budgets", put_budget, scope="admin", body=BudgetIn, answers={200: OneBudgetOut, 201: OneBudgetOut}),
    Operation("DELETE", "/v1/budgets", delete_budget, scope="admin", query=OneBudgetQuery, answers={200: DeletedBudgetOut}),
]
