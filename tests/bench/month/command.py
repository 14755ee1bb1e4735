"""`bin/bench month`: whether the server is after a month as it was after a week."""

from __future__ import annotations

import sys
from typing import cast

import click
import msgspec

from cmserver.base import logs
from tests.bench import page
from tests.bench.growth import record as growth
from tests.bench.month import record
from tests.bench.month.simulation import Size, live
from tests.bench.world import value, world

SHORT = Size(people=3, days=9, sessions=1, tool_uses=8, searches=1)


@click.command()
@click.option("--short", is_flag=True, help="Three people for nine days, little of each: whether it runs.")
@click.option("--people", default=20, show_default=True, help="People with agents.")
@click.option("--sessions", default=3, show_default=True, help="Sessions of each person on a working day.")
@click.option("--seed", default=19, show_default=True, help="The same seed, the same month.")
@click.option("--keep", is_flag=True, help="Keep the figures in build/bench/, for docs/reference/sizing.md.")
def main(people: int, sessions: int, seed: int, *, short: bool, keep: bool) -> None:
    """Simulate a month of 20 people with their agents at full speed; exits 1 when something grew, or was lost.

    Takes from ten minutes to half an hour.
    """
    logs.configure("console", "error")
    size = SHORT if short else Size(people=people, sessions=sessions)
    with world() as here:
        found = live(here, size, seed, lambda text: click.echo(text, err=True))
        machine = page.machine(cast("str", value(here.embedded.url, "SHOW server_version")))
    found = msgspec.structs.replace(found, machine=machine)
    click.echo(record.section(found))
    if keep:
        click.echo(f"kept: {record.keep(found).relative_to(page.ROOT)}")
        growth.write_page()
    sys.exit(1 if record.rises(found.days) or not found.verified or found.lost_events or found.doubled_events else 0)
