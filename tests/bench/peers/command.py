"""`bin/bench peers`: cmserver beside other programs, in one run."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import cast

import click

from cmserver.base import logs
from tests.bench import page
from tests.bench.load import loader
from tests.bench.peers import record
from tests.bench.peers.install import cache_folder, install
from tests.bench.peers.record import Round, Run
from tests.bench.peers.subjects import PEERS, Bench, Load
from tests.bench.world import value, world

CONNECTIONS = (1, 8, 64)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(PEERS)))
@click.option("--quick", is_flag=True, help="One short round: whether everything runs.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Interleaved rounds.")
@click.option("--seconds", default=3.0, show_default=True, help="Length of a peer's part of a round, in whole seconds for wrk.")
@click.option("--drained", default=5000, show_default=True, help="Events of which each queue is emptied.")
@click.option("--write", is_flag=True, help="Write the figures of docs/reference/performance.md, and keep all in build/bench/.")
@click.option("--check", is_flag=True, help="Exit with 1 when a ratio fell by more than a fifth against the last kept run.")
def main(names: tuple[str, ...], rounds: int, seconds: float, drained: int, *, quick: bool, write: bool, check: bool) -> None:
    """Measure cmserver beside other programs: rate, latency, CPU time and memory.

    Installs them from npm, Debian and PyPI into a cache folder the first time. Takes some twelve minutes.
    """
    if write and quick:
        raise click.UsageError("--write goes with the full size of everything.")
    if quick:
        rounds, seconds, drained = 1, 1.0, 200
    logs.configure("console", "error")
    before = record.last_kept()
    run = measure(names or tuple(PEERS), rounds, seconds, drained)
    click.echo(record.section(run))
    fallen = record.falls(before, run) if check and before else []
    if check:
        click.echo(verdict(before, fallen))
    if write:
        click.echo(f"kept: {record.keep(run).relative_to(page.ROOT)}")
        page.write(record.figures(run), {"peers": record.HOW}, run.machine)
    sys.exit(1 if fallen else 0)


def verdict(before: Run | None, fallen: list[record.Fall]) -> str:
    """What `--check` prints."""
    if before is None:
        return "There is no kept run to compare with: bin/bench peers --write"
    lines = [f"  {fall}" for fall in fallen]
    return "\n".join([f"{len(fallen)} ratios fell by more than a fifth since commit {before.machine['commit']}.", *lines])


def measure(names: tuple[str, ...], rounds: int, seconds: float, drained: int) -> Run:
    """All peers run beside each other, and each is measured while the others are idle."""
    taken: dict[str, dict[str, list[Round]]] = {}
    memory: dict[str, float] = {}
    programs = install(cache_folder())
    with world(max_connections="300") as here, loader() as over_sql:
        bench = Bench(here, programs, over_sql)
        with ExitStack() as stack:
            running = {name: stack.enter_context(start(bench)) for name in names if (start := PEERS[name].start)}
            for number in range(rounds):
                for connections in CONNECTIONS:
                    of = taken.setdefault("1 connection" if connections == 1 else f"{connections} connections", {})
                    for name in _turned(list(running), number):
                        of.setdefault(name, []).append(_round(running[name].add(connections, seconds)))
                        click.echo(f"round {number + 1}, {connections} connections: {name}", err=True)
            memory.update({name: subject.memory_mib() for name, subject in running.items() if subject.memory_mib})
        for number in range(rounds):
            for name in _turned(list(names), number):
                if drain := PEERS[name].drain:
                    taken.setdefault(record.DRAIN, {}).setdefault(name, []).append(_round(drain(bench, drained)))
                    click.echo(f"round {number + 1}, drain: {name}", err=True)
        machine = page.machine(cast("str", value(here.embedded.url, "SHOW server_version")))
    ordered = {measured: {name: of[name] for name in names if name in of} for measured, of in taken.items()}
    return Run(
        machine={**machine, "measured at": datetime.now(UTC).isoformat(timespec="seconds")},
        seconds=seconds,
        rounds=ordered,
        memory_mib=memory,
        names={name: PEERS[name].name for name in names},
        promises={name: PEERS[name].promise for name in names},
    )


def _turned(names: list[str], number: int) -> list[str]:
    """Each round begins with another one."""
    place = number % len(names)
    return names[place:] + names[:place]


def _round(load: Load) -> Round:
    return Round(per_second=load.per_second, cpu_per_thousand=load.cpu_per_thousand, p50_ms=load.p50_ms, p99_ms=load.p99_ms)
