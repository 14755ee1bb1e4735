"""What was stored, shown and opened, over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cmserver.access import verb
from cmserver.access.verb import VerbCall, command, option
from cmserver.base.columns import Columns, render_fields, render_table
from cmserver.ops.analytics.analyse import MAX_DAYS, USUAL_DAYS, analyse
from cmserver.ops.analytics.wire import AnalyticsOut


class AnalyticsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How many days, with today, and of which project."""

    project: str | None = None
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] = USUAL_DAYS


def _lines(report: AnalyticsOut, _: verb.Typed) -> str:
    totals = render_fields(*Columns(AnalyticsOut, "days, project, stored, shown, opened, receipts, lines, tokens").fields(report))
    projects = render_table(
        ("project", "stored", "sessions", "lines", "tokens"),
        [(row.project, row.stored, row.sessions, row.lines, row.tokens) for row in report.by_project],
        empty="Nothing was stored or shown.",
        shrink=("project",),
    )
    top = render_table(
        ("number", "type", "title", "shown", "opened"),
        [(row.number, row.type, row.title, row.times, row.access_count) for row in report.top],
        empty="No observation was shown.",
        shrink=("title",),
    )
    return f"{totals}\n\n{projects}\n\n{top}"


@command("analytics", _lines)
@option("--days", "How many days, including today.")
@option("--project", "Only this project.")
@verb.get("/v1/analytics", "observations:read")
async def get_analytics(call: VerbCall, given: AnalyticsQuery) -> AnalyticsOut:
    """Count what was stored, what of it agents were shown, and what they opened."""
    async with call.read() as conn:
        return await analyse(conn, call.principal, project=given.project, days=given.days)


routes = [get_analytics]
