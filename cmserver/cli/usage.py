"""`cmserver usage`: how much of what it may a team has used, and what it cost."""

from __future__ import annotations

import click
import msgspec

from cmserver.cli.budgets import Budget
from cmserver.cli.budgets import lines as budget_lines
from cmserver.cli.show import Cell, pairs, table
from cmserver.cli.talk import Talk, talks


class Row(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Calls of providers that belong together; only what was asked apart is there."""

    day: str | None = None
    project_id: str | None = None
    project: str | None = None
    provider: str | None = None
    model: str | None = None
    calls: int
    failed_calls: int
    unpriced_calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of GET /v1/usage."""

    since: str
    usage: dict[str, int | str]
    limits: dict[str, int | None]
    budgets: list[Budget] = []
    rows: list[Row] = []


@click.command()
@click.option("--by", metavar="WHAT", help="Tell calls of providers apart by project, model, day: one or several, with commas.")
@click.option("--days", type=click.IntRange(1, 366), help="Calls of so many days, with today; else of the month so far.")
@talks
async def usage(talk: Talk, by: str | None, days: int | None) -> None:
    """What the team has used this month, what it cost, and its limits. With --by or --days the calls of providers as a table."""
    answer = await talk.api.get("/v1/usage", {"by": by, "days": days})
    talk.tell(answer, Usage, (lambda found: _table(found, by or "")) if by or days else _lines)


def _lines(found: Usage) -> str:
    used: list[tuple[str, Cell]] = list(found.usage.items())
    limits: list[tuple[str, Cell]] = [(f"limit: {name}", most) for name, most in found.limits.items()]
    told = pairs(("since", found.since), *used, *limits)
    return f"{told}\n\n{budget_lines(found.budgets)}" if found.budgets else told


def _table(found: Usage, by: str) -> str:
    """Money and tokens behind what was asked apart."""
    apart = by.split(",")
    names = [name for name in ("day", "project", "model") if name in apart]
    return table(
        (*names, "calls", "failed", "input", "output", "cache read", "cache write", "USD", "unpriced"),
        [
            (
                *(_told(row, name) for name in names),
                row.calls,
                row.failed_calls,
                row.input_tokens,
                row.output_tokens,
                row.cache_read_tokens,
                row.cache_write_tokens,
                row.cost_usd,
                row.unpriced_calls,
            )
            for row in found.rows
        ],
        nothing="No provider was called.",
        wide=[name for name in names if name != "day"],
    )


def _told(row: Row, name: str) -> str | None:
    if name == "project":
        return row.project or f"deleted ({row.project_id})"
    return f"{row.provider}: {row.model}" if name == "model" else row.day
