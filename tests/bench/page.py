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
from tests.bench.month import record as month
from tests.bench.peers import record as peers

_KEPT = "<!-- From here on: what bin/bench peers and month have kept (--keep). -->\n"
PAGE = ROOT / "docs" / "reference" / "performance.md"

_HEAD = """# Performance

Written by `bin/bench --write`; do not edit. `bin/bench` measures the same on your machine, in about eight minutes.

Each figure stands beside a yardstick that was measured in the same rounds, alternating with it, on the same machine. The ratio
is the median of the rounds' ratios: it can be compared between machines, which the absolute numbers cannot. All is measured on
the embedded PostgreSQL with its default durability (every commit waits for the disk), and everything shares one machine:
PostgreSQL, the program, and what puts load on it. `bin/bench` prints some two hundred more, and p50 and p99 of each:
every list, page and tool, and search in projects of every size.
"""

CORE = (
    "POST /v1/events, 1 connection",
    "POST /v1/events, 8 connections",
    "POST /v1/events/batch of 100, 8 connections",
    "POST /v1/events while the worker is busy, 8 connections",
    "POST /v1/events while the worker is busy, 64 connections",
    "drain of 5,000 events of 64 sessions, one worker",
    "from event to claim, `cmserver run`",
    "claim beside 100,000 jobs in backoff",
    "CPU time of an event until its observation is stored, with rules",
    "memory of all processes after 100,000 events",
    "WAL beside the payload, per event until it is embedded",
    "input tokens of 200 tool uses in one session, in bursts",
    "input tokens a tool use, in a session of 2,000",
    "POST /v1/hooks/claude-code, a prompt",
    "hook, the server is up",
    "hook at a session's start, with its context",
    "hook, the server is down",
    "GET /v1/context",
    "index, share of its lines that is useful",
    "index, useful observations that have a line",
    "POST /v1/search by words, all of 50,000",
    "POST /v1/search by words and meaning, all of 50,000",
    "POST /v1/search by words, all of 1,000,000",
    "POST /v1/search by words and meaning, all of 1,000,000",
    "recall@20 of the approximate index, all of 1,000,000",
    "MCP, observation_search, one after the other",
    "20 lines of observation_search",
    "GET /v1/jobs",
    "GET /v1/observations",
    "GET /ui",
    "POST /v1/observations with `merge`, in a project of 10,000",
    "POST /v1/events while 1,000,000 events and 200,000 observations are backed up",
    "import claude-mem, 100,000 observations",
    "cold start, from an empty data folder to /readyz",
    "warm start, to /readyz",
)
"""The figures that stand on the page: what a user waits for, pays for, or needs hardware for."""


def write(figures: Mapping[str, Sequence[Figure]], measured_by: Mapping[str, str], postgres: str) -> Path:
    """`figures` and `measured_by` (in plain words) by the name of the benchmark."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text(figures, measured_by, postgres) + kept_sections(), encoding="utf-8")
    return PAGE


def kept_sections() -> str:
    """The parts that other runs have measured and kept: the programs beside it, and the month."""
    sections: list[str] = []
    if run := peers.last_kept():
        sections.append(peers.section(run))
    if lived := month.last_kept():
        sections.append(month.section(lived))
    return "".join(f"\n{section}" for section in ([_KEPT, *sections] if sections else []))


def write_kept_sections() -> None:
    """Put them at the end of the page in place of the older ones."""
    measured = PAGE.read_text(encoding="utf-8").partition(f"\n{_KEPT}")[0]
    PAGE.write_text(measured + kept_sections(), encoding="utf-8")


def text(figures: Mapping[str, Sequence[Figure]], measured_by: Mapping[str, str], postgres: str) -> str:
    """The page."""
    figures = {name: [one for one in found if one.name in CORE] for name, found in figures.items()}
    parts = [
        _HEAD,
        "## Figures\n",
        _table([one for found in figures.values() for one in found]),
        "## The machine\n",
        _machine(postgres),
    ]
    parts.append("## How each is measured\n")
    parts += [f"**`bin/bench {name}`.** {measured_by[name]}\n" for name, found in figures.items() if found]
    return "\n".join(parts).rstrip() + "\n"


def _table(figures: Sequence[Figure]) -> str:
    rows = [
        f"| {one.name} | {shown(one.median)} {one.unit} | {one.ratio:.2f} of {one.yardstick} ({shown(one.yardstick_median)}) "
        f"| {one.aim.of} {one.aim} | {'yes' if one.is_met else '**no**'} |"
        for one in figures
    ]
    return "\n".join(["| | median | ratio | aim | met |", "|---|---|---|---|---|", *rows]) + "\n"


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


def _machine(postgres: str) -> str:
    facts = machine(postgres)
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {fact} |" for name, fact in facts.items())]) + "\n"


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
