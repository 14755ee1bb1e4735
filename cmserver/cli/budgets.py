"""`cmserver budgets`: what may be spent on providers."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cmserver.access.budgets.model import Period
from cmserver.cli.api_client import ApiClient, api_command
from cmserver.cli.output import Columns
from cmserver.ops.spending.wire import BudgetOut, BudgetsOut, DeletedBudgetOut, OneBudgetOut


@click.group()
def budgets() -> None:
    """Limit what the team and its projects may spend on providers in a day or a month (UTC).

    When a budget is spent, generation waits: events are stored, and become observations in the next period or with a larger budget.
    """


_project = click.option("--project", help="The project; without it, the whole team.")
_period = click.option(
    "--period", type=click.Choice(["day", "month"]), default="month", show_default=True, help="A calendar day or month in UTC."
)


@budgets.command("list")
@click.option("--project", help="Only the budgets that apply to this project.")
@api_command
async def list_budgets(client: ApiClient, project: str | None) -> None:
    """List the budgets and what is spent of them."""
    answer = await client.get("/v1/budgets", {"project": project})
    client.show(answer, BudgetsOut, lambda page: render_budgets(page.budgets))


_COLUMNS = Columns(
    BudgetOut,
    "whose, period, state, spent, tokens=spent_tokens, of=max_tokens, USD=spent_usd, of USD=max_usd, resets",
    whose=lambda budget: budget.project or "the team",
    spent=lambda budget: None if budget.share is None else f"{budget.share:.0%}",
)


def render_budgets(budgets: Sequence[BudgetOut]) -> str:
    """A table of budgets."""
    return _COLUMNS.table(budgets, empty="There are no budgets: nothing is capped.", shrink=("whose",))


@budgets.command("set")
@_period
@_project
@click.option("--tokens", type=click.IntRange(min=1), help="The maximum number of tokens, of all kinds together.")
@click.option("--usd", metavar="AMOUNT", help="The maximum in US dollars: 12.50.")
@api_command
async def set_budget(client: ApiClient, period: Period, project: str | None, tokens: int | None, usd: str | None) -> None:
    """Set a budget. It replaces the one of that period; waiting jobs are tried at once."""
    answer = await client.put("/v1/budgets", {"period": period, "projectId": project, "maxTokens": tokens, "maxUsd": usd})
    client.show(answer, OneBudgetOut, lambda result: render_budgets([result.budget]))


@budgets.command("remove")
@_period
@_project
@api_command
async def remove_budget(client: ApiClient, period: Period, project: str | None) -> None:
    """Remove a budget: nothing is capped any more."""
    answer = await client.delete("/v1/budgets", {"period": period, "project": project})
    client.show(answer, DeletedBudgetOut, lambda _: f"Removed the {period} budget of {project or 'the team'}.")
