"""Analytics: what was stored, what of it agents were shown, and what they opened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.doors.web.page import Page
from cmserver.doors.web.pages import memory
from cmserver.doors.web.visit import Visit
from cmserver.ops.analytics.analyse import MAX_DAYS, USUAL_DAYS, analyse

_PERIODS = (7, 30, 90)


class AnalyticsFilters(msgspec.Struct, frozen=True, kw_only=True):
    """How many days, with today, and of which project."""

    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] = USUAL_DAYS
    project: str | None = None


async def get_analytics(visit: Visit) -> Response:
    """How much was stored in the memory, what of it agents were shown, and what they opened."""
    query = visit.query(AnalyticsFilters)
    principal = visit.principal
    async with visit.tenant() as conn:
        report = await analyse(conn, principal, project=query.project, days=query.days)
        projects = await memory.list_projects(conn, principal)
        shown = await memory.lines_of_numbers(conn, principal, [row.number for row in report.top])
    lines_shown = {number: memory.observation_line(principal, row, {}) for number, row in shown.items()}
    stored = {row.day: row.stored for row in report.by_day}
    lines = {row.day: row.lines for row in report.by_day}
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=back) for back in range(query.days - 1, -1, -1)]
    return visit.render(
        "analytics.html",
        title="Analytics",
        report=report,
        lines=lines_shown,
        badges=memory.BADGES,
        query=query,
        projects=projects,
        periods=_PERIODS,
        stored_bars=[(day.isoformat(), stored.get(day, 0), f"{stored.get(day, 0):,} stored") for day in days],
        growth_bars=[
            (day.isoformat(), total, f"{total:,} since {days[0]:%-d %B}")
            for day, total in zip(days, accumulate(stored.get(day, 0) for day in days), strict=True)
        ],
        told_bars=[
            (
                f"#{row.number} {row.title or ''}"[:60].strip(),
                row.times,
                f"told {row.times:,}, read {row.access_count:,}",
                row.access_count,
            )
            for row in report.top
        ],
        shown_bars=[(day.isoformat(), lines.get(day, 0), f"{lines.get(day, 0):,} lines shown") for day in days],
    )


routes = [
    Page("GET", "/ui/analytics", get_analytics, scope="observations:read"),
]
