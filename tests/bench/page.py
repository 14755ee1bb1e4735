"""docs/reference/performance.md, written from what was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.load import ROOT
from tests.bench.measure import Figure, shown

PAGE = ROOT / "docs" / "reference" / "performance.md"

_HEAD = """# Performance

Written by `bin/bench` and `bin/bench peers` with `--write`; do not edit. What is measured takes the place of what stood here.

Each figure stands beside a yardstick that was measured in the same rounds, alternating with it, on the same machine. The ratio
is the median of the rounds' ratios: it can be compared between machines, which the absolute numbers cannot, and on a busy machine
(its load average stands beside the day) it alone says something. All is measured on the embedded PostgreSQL with its default
durability (every commit waits for the disk), and everything shares one machine: PostgreSQL, the program, and what puts load on it.
`bin/bench` prints some two hundred more, and p50 and p99 of each.
"""

CORE = {
    "peers": (
        "events beside claude-mem 13.25.3, its worker, 1 connection",
        "events beside claude-mem 13.25.3, its worker, 8 connections",
        "events beside claude-mem 13.25.3, its worker, 64 connections",
        "events beside claude-mem 13.15.3, its worker, 1 connection",
        "events beside claude-mem 13.25.3, its server, 8 connections",
        "CPU time of an event with its observation, 8 connections",
        "memory of `cmserver run` after its events",
        "drain, one worker",
    ),
    "ingest": ("POST /v1/events, 1 connection", "POST /v1/events/batch of 100, 8 connections"),
    "wakeup": ("from event to claim, `cmserver run`",),
    "callers": ("POST /v1/events while the worker is busy, 8 connections",),
    "pages": ("GET /ui",),
    "cost": ("input tokens of 200 tool uses in one session, in bursts",),
    "context": (
        "GET /v1/context",
        "POST /v1/hooks/claude-code, a prompt",
        "index, share of its lines that is useful",
    ),
    "search": (
        "POST /v1/search by words and meaning, all of 50,000",
        "POST /v1/search by words and meaning, all of 1,000,000",
        "POST /v1/search, two of the commonest words, all of 10,000",
        "POST /v1/search, the first one of a team that has nothing",
    ),
    "hooks": (
        "hook, the server is up",
        "hook at a session's start, with its context",
        "hook, the server is down",
    ),
    "mcp": (
        "MCP, 100 sessions that think between their calls, p99",
        "20 lines of observation_search",
    ),
    "backup": ("POST /v1/events while 1,000,000 events and 200,000 observations are backed up",),
    "import": ("import claude-mem, 100,000 observations",),
    "start": ("warm start, to /readyz",),
    "writes": ("WAL beside the payload, per event until it is embedded",),
}
"""The figures that stand on the page, by benchmark: what a user waits for, pays for, or needs hardware for."""
_LASTING = {"cores", "processor", "memory", "system", "Python", "PostgreSQL"}


def write(figures: Sequence[Figure], how: Mapping[str, str], facts: Mapping[str, str]) -> None:
    """Put what belongs on the page in place of what was there: `how` is how it was measured, in plain words, by benchmark."""
    PAGE.write_text(text(figures, how, facts, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def text(figures: Sequence[Figure], how: Mapping[str, str], facts: Mapping[str, str], before: str) -> str:
    """The page; a figure that was not measured, and how, stay as they were before."""
    measured = f"{facts['date']}, {facts['commit']}, load {facts['load at the end']}"
    rows = _lines(before, "| ", " |") | {figure.name: _row(figure, measured) for figure in figures}
    ways = _lines(before, "**`bin/bench ", "`.**") | {name: f"**`bin/bench {name}`.** {words}" for name, words in how.items()}
    lasting = {name: fact for name, fact in facts.items() if name in _LASTING}
    parts = [
        _HEAD,
        "## Figures\n",
        "| | median | ratio | aim | met | measured |\n|---|---|---|---|---|---|",
        *(rows[name] for names in CORE.values() for name in names if name in rows),
        "\n## The machine\n",
        "| | |\n|---|---|",
        *(f"| {name} | {fact} |" for name, fact in lasting.items()),
        "\n## How each is measured\n",
        "\n\n".join(ways[name] for name in CORE if name in ways),
    ]
    return "\n".join(parts) + "\n"


def _lines(text: str, begin: str, end: str) -> dict[str, str]:
    """The lines that begin so, by what stands between that and the first `end`."""
    return {line.removeprefix(begin).partition(end)[0]: line for line in text.splitlines() if line.startswith(begin)}


def _row(one: Figure, measured: str) -> str:
    return (
        f"| {one.name} | {shown(one.median)} {one.unit} | {one.ratio:.2f} of {one.yardstick} ({shown(one.yardstick_median)}) "
        f"| {one.aim.of} {one.aim} | {'yes' if one.is_met else '**no**'} | {measured} |"
    )


def machine(postgres: str) -> dict[str, str]:
    """What it was measured on."""
    return {
        "cores": f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}",
        "processor": _processor(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "load at the end": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "PostgreSQL": postgres,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--", "cmserver", "sql", "requirements.lock") else ""
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{changed}"
