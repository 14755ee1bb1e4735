"""`cmserver verify`: the conservation sums."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

from cmserver.base.configuration import load
from cmserver.base.db import Db
from cmserver.cli.database import database_url
from cmserver.cli.exits import Exit
from cmserver.ops import repository
from cmserver.ops.repository import Conservation

_COLUMNS = ("events", "jobs", "queued", "processing", "observed", "skipped", "failed", "cancelled")


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
def verify(config_file: Path | None) -> None:
    """Prove that nothing was lost: every event that asked for observations has exactly one job, in one state.

    Exits 1 when the sums do not hold, or when no team can be seen at all.
    """
    settings = load(os.environ, config_file=config_file).settings
    with database_url(settings) as url:
        teams = asyncio.run(_sums(url))
    if not teams:
        click.echo("No team can be seen in this database: that proves nothing.", err=True)
        sys.exit(Exit.NO)
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
        sys.exit(Exit.NO)
    click.echo("The sums hold: events asked = queued + processing + observed + skipped + failed + cancelled.")


async def _sums(url: str) -> list[Conservation]:
    async with Db(url, size=1) as db, db.system() as conn:
        return await repository.conservation(conn)
