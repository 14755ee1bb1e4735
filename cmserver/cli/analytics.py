"""`cmserver analytics`: what the memory stored, what agents were shown of it, and what they opened."""

from __future__ import annotations

import click

from cmserver.cli.api_client import ApiClient, api_command
from cmserver.cli.output import Columns, render_fields, render_table
from cmserver.ops.analytics.wire import AnalyticsOut


@click.command()
@click.option("--days", type=click.IntRange(1, 366), default=30, show_default=True, help="How many days, including today.")
@click.option("--project", help="Only this project.")
@api_command
async def analytics(client: ApiClient, days: int, project: str | None) -> None:
    """Count what was stored, what of it agents were shown, and what they opened."""
    answer = await client.get("/v1/analytics", {"days": days, "project": project})
    client.show(answer, AnalyticsOut, _lines)


def _lines(report: AnalyticsOut) -> str:
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
