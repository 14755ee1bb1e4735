"""`cmserver budgets`: what may be spent on providers."""

from __future__ import annotations

from typing import Literal

import click
import msgspec

from cmserver.cli.show import Cell, moment, table
from cmserver.cli.talk import Talk, talks

Period = Literal["day", "month"]


class Budget(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A budget as the API shows it."""

    project_id: str | None
    project: str | None
    period: Period
    max_tokens: int | None
    max_usd: str | None
    spent_tokens: int | None
    spent_usd: str | None
    share: float | None
    state: str
    resets_at_epoch: int


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with budgets."""

    budgets: list[Budget]


class OneBudget(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with one budget."""

    budget: Budget


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that says that it is gone."""

    deleted: bool


@click.group()
def budgets() -> None:
    """Budgets: what the team and its projects may spend on providers in a day or a month (UTC).

    When a budget is spent, generation waits: events are stored as before, and become observations when there is money again.
    """


_project = click.option("--project", help="Of this project; else of the whole team.")
_period = click.option(
    "--period", type=click.Choice(["day", "month"]), default="month", show_default=True, help="Of the calendar, in UTC."
)


@budgets.command("list")
@click.option("--project", help="Only those under which this project's calls fall.")
@talks
async def list_budgets(talk: Talk, project: str | None) -> None:
    """The budgets, and what is spent of them."""
    talk.tell(await talk.api.get("/v1/budgets", {"project": project}), Budgets, lambda found: lines(found.budgets))


def lines(found: list[Budget]) -> str:
    """A table of budgets."""
    return table(
        ("whose", "period", "state", "spent", "tokens", "of", "USD", "of USD", "resets"),
        [
            (
                one.project or "the team",
                one.period,
                one.state,
                None if one.share is None else f"{one.share:.0%}",
                one.spent_tokens,
                one.max_tokens,
                one.spent_usd,
                one.max_usd,
                moment(one.resets_at_epoch),
            )
            for one in found
        ],
        nothing="There are no budgets: nothing is capped.",
        wide=("whose",),
    )


@budgets.command("set")
@_period
@_project
@click.option("--tokens", type=click.IntRange(min=1), help="The most tokens, of all kinds together.")
@click.option("--usd", metavar="AMOUNT", help="The most money, in US dollars: 12.50.")
@talks
async def set_budget(talk: Talk, period: Period, project: str | None, tokens: int | None, usd: str | None) -> None:
    """Say what may be spent in a period. It replaces what was said of it before; what waits is tried at once."""
    body = {"period": period, "projectId": project, "maxTokens": tokens, "maxUsd": usd}
    talk.tell(await talk.api.put("/v1/budgets", body), OneBudget, lambda one: lines([one.budget]))


@budgets.command("remove")
@_period
@_project
@talks
async def remove_budget(talk: Talk, period: Period, project: str | None) -> None:
    """Let there be no cap any more."""
    answer = await talk.api.delete("/v1/budgets", {"period": period, "project": project})
    whose: Cell = project or "the team"
    talk.tell(answer, Removed, lambda _: f"There is no budget of {whose} for the {period} any more.")
