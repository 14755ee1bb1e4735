"""`cmserver retention`: takes what is kept no longer, or counts it."""

from __future__ import annotations

import asyncio

import click
import msgspec

from cmserver.base.columns import render_table
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.settings import Settings
from cmserver.cli.config import settings_option
from cmserver.cli.database import database_urls
from cmserver.cli.output import render_json
from cmserver.retention.model import DESCRIPTIONS, RetentionReport
from cmserver.retention.sweep import count_due, sweep


@click.command()
@click.option("--dry-run", is_flag=True, help="Count what would go, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@settings_option
def retention(settings: Settings, *, dry_run: bool, as_json: bool) -> None:
    """Take what is kept no longer, as the server does every five minutes; needs access to the database, as `verify` does.

    How long what is kept is set by `cmserver projects retention` and `cmserver teams retention`.
    """
    with database_urls(settings) as urls:
        report = asyncio.run(_run(urls, dry_run=dry_run))
    if as_json:
        click.echo(render_json(msgspec.json.encode(report)))
        return
    click.echo(
        render_table(
            ("kind", "would go" if dry_run else "taken", ""),
            [(kind, count, DESCRIPTIONS[kind]) for kind, count in report.counts.items()],
            empty="",
        )
    )
    for line in report.lost_pins:
        click.echo(sanitize_line(line), err=True)
    if report.backup_runs:
        click.echo("A backup runs: nothing is taken until it is done.", err=True)
    elif not report.is_complete:
        click.echo("There is more: the next sweep goes on.", err=True)


async def _run(urls: DatabaseUrls, *, dry_run: bool) -> RetentionReport:
    async with Db(urls, size=2) as db:
        return await (count_due if dry_run else sweep)(db)
