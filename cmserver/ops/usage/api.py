"""What was used this month, and what it cost, over HTTP."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.limits import repository as limits
from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.base.money import usd
from cmserver.base.text import matching
from cmserver.generation.spending import repository as spending
from cmserver.generation.spending.model import Row
from cmserver.ops.budgets.wire import BudgetOut, budget_out

_MOST_ROWS = 5_000

By = Annotated[
    str,
    matching(
        r"^(?:project|model|day)(?:,(?:project|model|day)){0,2}$",
        "Expected project, model or day, or several of them with commas between",
    ),
]
"""Of `project`, `model` and `day` those to tell apart, separated by commas."""


class UsageQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`by` tells the calls of providers apart, of so many `days` (with today), or of the month so far; without `by` in one row."""

    by: By | None = None
    days: Annotated[int, Meta(ge=1, le=366)] | None = None


class CallsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Calls of providers. What is under way counts with its estimate. Money is decimal text, in US dollars.

    `unpricedCalls` are those whose price is not known: they are not in `costUsd`.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: str
    failed_calls: int
    unpriced_calls: int


class AmountsOut(CallsOut, rename="camel", frozen=True, kw_only=True):
    """What was used: requests that were let in, events that were stored, and what the providers said they read and wrote."""

    requests: int
    events: int
    provider_calls: int


class UsageRowOut(CallsOut, rename="camel", frozen=True, kw_only=True):
    """Calls of one day, project, provider and model, as far as these were asked apart; `project` is null when it was deleted."""

    day: date | UnsetType = UNSET
    project_id: UUID | UnsetType = UNSET
    project: str | UnsetType | None = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    calls: int


class LimitsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How much the key may use, and all keys of its team together; null is no limit."""

    requests_per_minute: int | None
    events_per_month: int | None
    team_requests_per_minute: int | None
    team_events_per_month: int | None


class UsageOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The month so far (UTC), as it was about a second ago.

    `budgets` are those of which 80 % or more are spent. `rows` are there when `by` or `days` was asked, the 5,000 first; whether
    there are more says `rowsAreCapped`.
    """

    since: datetime
    usage: AmountsOut
    limits: LimitsOut
    budgets: list[BudgetOut]
    rows: list[UsageRowOut] | UnsetType = UNSET
    rows_are_capped: bool | UnsetType = UNSET


async def get_usage(request: Request) -> Response:
    """What the team has used this month, and what it cost.

    A key that is bound to a project sees its own requests and events, with those of the keys it was rotated from, and its project's
    calls of providers.
    """
    who = await caller(request, Principal)
    asked = query(request, UsageQuery)
    only = (who.counts_as or who.key_id) if who.project_id is not None else None
    apart = set(asked.by.split(",")) if asked.by else set[str]()
    async with db(request).tenant(who.team_id) as conn:
        used = await limits.used(conn, who.team_id, api_key_id=only)
        since = used.since.astimezone(UTC)
        spent = await spending.spent(conn, who.team_id, since=since.date(), project_id=who.project_id)
        standings = await spending.standings(conn, who.team_id, project_id=who.project_id)
        rows = (
            await spending.rows(
                conn,
                who.team_id,
                only=who.project_id,
                days=asked.days,
                by_project="project" in apart,
                by_model="model" in apart,
                by_day="day" in apart,
                limit=_MOST_ROWS + 1,
            )
            if asked.by or asked.days
            else None
        )
    return answer(
        UsageOut(
            since=since,
            usage=AmountsOut(
                requests=used.requests,
                events=used.events,
                provider_calls=spent.calls,
                input_tokens=spent.input_tokens,
                output_tokens=spent.output_tokens,
                cache_read_tokens=spent.cache_read_tokens,
                cache_write_tokens=spent.cache_write_tokens,
                cost_usd=usd(spent.cost_usd),
                failed_calls=spent.failed_calls,
                unpriced_calls=spent.unpriced_calls,
            ),
            limits=LimitsOut(
                requests_per_minute=who.limits.requests_per_minute,
                events_per_month=who.limits.events_per_month,
                team_requests_per_minute=who.limits.team_requests_per_minute,
                team_events_per_month=who.limits.team_events_per_month,
            ),
            budgets=[budget_out(one, who) for one in standings if one.state != "open"],
            rows=UNSET if rows is None else [_row_out(row) for row in rows[:_MOST_ROWS]],
            rows_are_capped=UNSET if rows is None else len(rows) > _MOST_ROWS,
        )
    )


def _row_out(row: Row) -> UsageRowOut:
    return UsageRowOut(
        day=row.day or UNSET,
        project_id=row.project_id or UNSET,
        project=row.project if row.project_id else UNSET,
        provider=UNSET if row.provider is None else row.provider,
        model=UNSET if row.model is None else row.model,
        calls=row.calls,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
        cost_usd=usd(row.cost_usd),
        failed_calls=row.failed_calls,
        unpriced_calls=row.unpriced_calls,
    )


routes = [
    Operation("GET", "/v1/usage", get_usage, scope="jobs:read", query=UsageQuery, answers={200: UsageOut}),
]
