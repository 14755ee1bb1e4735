"""`cmserver verify`: the conservation sums."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import click
from psycopg import errors

from cmserver.base.columns import render_table
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.migrate import MigrationError
from cmserver.base.settings import Settings
from cmserver.cli.config import settings_option
from cmserver.cli.database import database_urls
from cmserver.cli.exit_codes import ExitCode
from cmserver.cli.operator import OTHER_SCHEMA
from cmserver.ops import repository as ops
from cmserver.ops.repository import Conservation, EntitySums, NumberSums
from cmserver.retention import repository as retention
from cmserver.retention.model import TakenRows

_NUMBER_COLUMNS = ("numbered", "turns", "shown", "merged", "expired", "deleted")
_COLUMNS = ("events", "jobs", "queued", "processing", "observed", "skipped", "failed", "cancelled")


@click.command()
@settings_option
def verify(settings: Settings) -> None:
    """Check that nothing was lost: every event that needs observations has exactly one job, in one state; and what became of
    every number: it is that of a turn, or of an observation that is shown, merged or expired; or it is deleted. Entities count
    what mentions them.

    Exits 1 when the sums do not hold, or when the database shows no team.
    """
    with database_urls(settings) as urls:
        teams, numbers, entities, taken = asyncio.run(_sums(urls))
    holds = echo_sums(teams)
    holds = _echo_numbers(numbers) and holds
    holds = _echo_entities(entities) and holds
    if taken:
        click.echo("\nRetention took these rows, which is no loss:")
        click.echo(render_table(("team", "kind", "rows"), [(row.team, row.kind, row.row_count) for row in taken], empty=""))
    if not holds:
        sys.exit(ExitCode.FAILURE)


def echo_sums(teams: Sequence[Conservation]) -> bool:
    """Print the sums of every team; True when there is a team and all sums hold."""
    if not teams:
        click.echo("This database shows no team, so there is nothing to check.", err=True)
        return False
    width = max(4, *(len(team.team) for team in teams))
    click.echo("  ".join(["team".ljust(width), *(name.rjust(10) for name in _COLUMNS)]))
    for team in teams:
        numbers = (str(getattr(team, name)).rjust(10) for name in _COLUMNS)
        click.echo("  ".join([team.team.ljust(width), *numbers, "" if team.holds else " <- does not hold"]))
    wrong = [team for team in teams if not team.holds]
    for team in wrong:
        click.echo(
            f"Team {team.team}: {team.events} events asked, {team.jobs} jobs; {team.events_without_job} events have no job, "
            f"{team.jobs_without_event} jobs have no such event.",
            err=True,
        )
    if wrong:
        return False
    click.echo("The sums hold: events asked = queued + processing + observed + skipped + failed + cancelled.")
    return True


def _echo_numbers(teams: Sequence[NumberSums]) -> bool:
    """Print what became of every team's numbers; True when each means one thing, and every merge is on record."""
    rows = [(team.team, *(str(getattr(team, name)) for name in _NUMBER_COLUMNS)) for team in teams]
    click.echo("\nObservations and turns: numbered = turns + shown + merged + expired + deleted.")
    click.echo(render_table(("team", *_NUMBER_COLUMNS), rows, empty=""))
    wrong = [team for team in teams if not team.holds]
    for team in wrong:
        click.echo(
            f"Team {team.team}: {team.merged_without_record} observations are merged into others that do not say so; "
            f"{team.numbered_twice} numbers are those of an observation and a turn; "
            f"{max(0, -team.deleted)} observations or turns are more than numbers were given out.",
            err=True,
        )
    return not wrong


def _echo_entities(teams: Sequence[EntitySums]) -> bool:
    """Print the entities of every team that has some; True when each counts what mentions it."""
    if not teams:
        return True
    rows = [(team.team, str(team.entities), str(team.aliases), str(team.mentions)) for team in teams]
    click.echo("\nEntities, and what mentions them:")
    click.echo(render_table(("team", "entities", "other names", "mentions"), rows, empty=""))
    wrong = [team for team in teams if not team.holds]
    for team in wrong:
        click.echo(
            f"Team {team.team}: {team.miscounted} entities count another number of mentions than they have; {team.astray} mentions "
            "count for another entity than the one that their name stands for.",
            err=True,
        )
    return not wrong


async def _sums(urls: DatabaseUrls) -> tuple[list[Conservation], list[NumberSums], list[EntitySums], list[TakenRows]]:
    async with Db(urls, size=1) as db, db.system() as conn:
        try:
            return (
                await ops.CONSERVATION.all(conn),
                await ops.NUMBER_SUMS.all(conn),
                await ops.ENTITY_SUMS.all(conn),
                await retention.COUNTS.all(conn),
            )
        except (errors.UndefinedTable, errors.UndefinedColumn) as error:
            raise MigrationError(OTHER_SCHEMA) from error
