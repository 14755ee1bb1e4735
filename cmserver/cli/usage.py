"""`cmserver usage`: what a team has used of its limits, and what it cost."""

from __future__ import annotations

import click
import msgspec
from msgspec import UNSET

from cmserver.base.columns import Cell, render_fields, render_table
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import ApiClient, api_command
from cmserver.ops.spending.api import render_budgets
from cmserver.ops.spending.wire import UsageOut, UsageRowOut


@click.command()
@click.option("--by", metavar="WHAT", help="Group provider calls by project, model, day: one or several, separated by commas.")
@click.option("--days", type=click.IntRange(1, 366), help="Calls of this many days, including today. [default: this month]")
@click.option("--csv", "as_csv", is_flag=True, help="Print the provider calls as CSV, for spreadsheets.")
@api_command
async def usage(client: ApiClient, by: str | None, days: int | None, *, as_csv: bool) -> None:
    """Show this month's usage, its cost, and the limits; with --by or --days a table of provider calls."""
    if as_csv:
        answer = await client.get("/v1/usage", {"by": by, "days": days, "format": "csv"})
        for line in answer.raw.decode().splitlines():
            click.echo(sanitize_line(line))
        return
    answer = await client.get("/v1/usage", {"by": by, "days": days})
    client.show(answer, UsageOut, (lambda report: _table(report, by or "")) if by or days else _lines)


def _lines(report: UsageOut) -> str:
    used: dict[str, Cell] = msgspec.to_builtins(report.usage)
    limits: dict[str, Cell] = msgspec.to_builtins(report.limits)
    lines = render_fields(
        ("since", f"{report.since:%Y-%m-%dT%H:%M:%SZ}"),
        *used.items(),
        *((f"limit: {name}", limit) for name, limit in limits.items()),
    )
    return f"{lines}\n\n{render_budgets(report.budgets)}" if report.budgets else lines


def _table(report: UsageOut, by: str) -> str:
    names = [name for name in ("day", "project", "model") if name in by.split(",")]
    return render_table(
        (*names, "calls", "failed", "input", "output", "cache read", "cache write", "USD", "unpriced"),
        [
            (
                *(_group(row, name) for name in names),
                row.calls,
                row.failed_calls,
                row.input_tokens,
                row.output_tokens,
                row.cache_read_tokens,
                row.cache_write_tokens,
                row.cost_usd,
                row.unpriced_calls,
            )
            for row in ([] if report.rows is UNSET else report.rows)
        ],
        empty="No provider was called.",
        shrink=[name for name in names if name != "day"],
    )


def _group(row: UsageRowOut, name: str) -> str:
    if name == "project":
        return row.project or f"deleted ({row.project_id})"
    return f"{row.provider}: {row.model}" if name == "model" else str(row.day)
