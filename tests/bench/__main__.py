"""`python -m tests.bench`: what bin/bench runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import cast

import click
import msgspec

from cmserver.base import logs
from cmserver.cli.progress import Progress
from tests.bench import (
    against,
    answers,
    backup,
    callers,
    claim,
    consolidation,
    context,
    cost,
    drain,
    hooks,
    imports,
    ingest,
    lists,
    mcp,
    mcp_tokens,
    page,
    pages,
    proof,
    retention,
    search,
    stalls,
    start,
    wakeup,
    writes,
)
from tests.bench.growth import command as growth
from tests.bench.load import ROOT
from tests.bench.measure import Figure, line
from tests.bench.month import command as month
from tests.bench.peers import command as peers
from tests.bench.recall import command as recall
from tests.bench.scale import FULL, MILLION, QUICK, Scale
from tests.bench.unfinished import read_commit, resume
from tests.bench.world import World, value, world
from tests.evaluation import command as generation
from tests.evaluation.pairs import command as pairs
from tests.evaluation.usefulness import command as usefulness


class Benchmark(msgspec.Struct, frozen=True):
    """What can be named on the command line: how it runs, and how it measures, in words for the page."""

    run: Callable[[World, Scale], list[Figure]]
    how: str


BENCHMARKS = {
    "ingest": Benchmark(ingest.run, ingest.HOW),
    "drain": Benchmark(drain.run, drain.HOW),
    "wakeup": Benchmark(wakeup.run, wakeup.HOW),
    "callers": Benchmark(callers.run, callers.HOW),
    "claim": Benchmark(claim.run, claim.HOW),
    "lists": Benchmark(lists.run, lists.HOW),
    "pages": Benchmark(pages.run, pages.HOW),
    "cost": Benchmark(cost.run, cost.HOW),
    "context": Benchmark(context.run, context.HOW),
    "search": Benchmark(search.run, search.HOW),
    "hooks": Benchmark(hooks.run, hooks.HOW),
    "mcp": Benchmark(lambda world, scale: [*mcp.run(world, scale), *mcp_tokens.run(world, scale)], f"{mcp.HOW} {mcp_tokens.HOW}"),
    "consolidation": Benchmark(consolidation.run, consolidation.HOW),
    "retention": Benchmark(retention.run, retention.HOW),
    "backup": Benchmark(backup.run, backup.HOW),
    "import": Benchmark(imports.run, imports.HOW),
    "stalls": Benchmark(stalls.run, stalls.HOW),
    "start": Benchmark(start.run, start.HOW),
    "writes": Benchmark(writes.run, writes.HOW),
}

_UNFINISHED = ROOT / "build" / "bench.json"
ONLY_NAMED = {"stalls"}
"""Benchmarks that take half an hour, and belong to another page."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--quick", is_flag=True, help="Tiny sizes: whether the benchmarks run, not how fast anything is.")
@click.option(
    "--million",
    is_flag=True,
    help="Search 10,000 and 1,000,000 observations as well: half an hour more. --write of all does it, too.",
)
@click.option("--sizes", help="Search databases of so many observations instead, between commas: 10000,200000.")
@click.option(
    "--events", type=click.IntRange(min=1000), help="Events in the large database of lists and pages. [default: 1,000,000]"
)
@click.option("--against", "commit", help="Measure CPU time and memory beside this commit of the repository as well.")
@click.option("--write", is_flag=True, help="Write what was measured into docs/reference/performance.md.")
def main(
    names: Sequence[str], sizes: str | None, events: int | None, commit: str | None, quick: bool, million: bool, write: bool
) -> None:
    """Measure the figures of docs/reference/performance.md: all of them, or those that are named. Exits 1 when an aim is missed."""
    if write and (quick or events):
        raise click.UsageError("--write goes with the full size of everything.")
    if million and quick:
        raise click.UsageError("--million goes with the full size of everything.")
    if sizes and million:
        raise click.UsageError("--sizes goes without --million, which has sizes of its own.")
    logs.configure("console", "error")
    scale = QUICK if quick else MILLION if million or (write and not names) else FULL
    if sizes:
        scale = msgspec.structs.replace(scale, libraries=_read_sizes(sizes))
    if events:
        scale = msgspec.structs.replace(scale, crowd=events)
    usual = () if commit and not write else [name for name in BENCHMARKS if name not in ONLY_NAMED]
    chosen = {name: BENCHMARKS[name] for name in names or usual}
    if commit:
        chosen["against"] = Benchmark(lambda here, scale: against.run(here, scale, commit), against.HOW.format(commit=commit))
    commit_here, is_clean = read_commit()
    run = resume(_UNFINISHED, scale, is_clean=is_clean, commit=commit_here)
    interrupted = "Interrupted. What was measured is kept; run it again at this commit, and it goes on there."
    with world() as here, Progress("Measuring", len(chosen), "benchmarks", interrupted=interrupted) as progress:
        for done, (name, benchmark) in enumerate(chosen.items()):
            progress.show(done)
            if name not in run.figures or name == "against":
                run.figures[name] = benchmark.run(here, scale)
                run.keep(_UNFINISHED)
            for figure in run.figures[name]:
                click.echo(line(figure))
        postgres = cast("str", value(here.embedded.url, "SHOW server_version"))
    _UNFINISHED.unlink(missing_ok=True)
    found = {name: run.figures[name] for name in chosen}
    if write:
        page.write(
            [one for figures in found.values() for one in figures],
            {name: one.how for name, one in chosen.items()},
            page.machine(postgres),
        )
        click.echo(f"written: {page.PAGE.relative_to(page.ROOT)}")
    if not quick and not all(figure.is_met for figures in found.values() for figure in figures):
        sys.exit(1)


def _read_sizes(sizes: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in sizes.split(","))
    except ValueError as error:
        raise click.UsageError(f"--sizes {sizes} has no numbers: 10000,200000") from error


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    commands = {"recall": recall.main, "generation": generation.main, "pairs": pairs.main, "usefulness": usefulness.main}
    commands |= {"answers": answers.main, "growth": growth.main, "month": month.main, "peers": peers.main, "prove": proof.main}
    if name == "--check":
        peers.main(args=sys.argv[1:], prog_name="bin/bench peers")
    if command := commands.get(name):  # with options of their own, no aims of time
        command(args=sys.argv[2:], prog_name=f"bin/bench {name}")
    main()
