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
from tests.bench.profile import record as profile

_KEPT = "<!-- From here on: what bin/bench peers, profile and month have kept (--keep). -->\n"
PAGE = ROOT / "docs" / "reference" / "performance.md"

_HEAD = """# Performance

Written by `bin/bench --write`; do not edit. `bin/bench` measures the same on your machine, in about eight minutes.

Each figure stands beside a yardstick that was measured in the same rounds, alternating with it, on the same machine. The ratio
is the median of the rounds' ratios: it can be compared between machines, which the absolute numbers cannot. All is measured on
the embedded PostgreSQL with its default durability (every commit waits for the disk), and everything shares one machine:
PostgreSQL, the program, and what puts load on it.
"""


def write(figures: Mapping[str, Sequence[Figure]], measured_by: Mapping[str, str], postgres: str) -> Path:
    """`figures` and `measured_by` (in plain words) by the name of the benchmark."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text(figures, measured_by, postgres) + kept_sections(), encoding="utf-8")
    return PAGE


def kept_sections() -> str:
    """The parts that other runs have measured and kept: the programs beside it, where the time goes, and the month."""
    sections: list[str] = []
    if run := peers.last_kept():
        sections.append(peers.section(run))
    if profiled := profile.last_kept():
        sections.append(profile.section(profiled))
    if lived := month.last_kept():
        sections.append(month.section(lived))
    return "".join(f"\n{section}" for section in ([_KEPT, *sections] if sections else []))


def write_kept_sections() -> None:
    """Put them at the end of the page in place of the older ones."""
    measured = PAGE.read_text(encoding="utf-8").partition(f"\n{_KEPT}")[0]
    PAGE.write_text(measured + kept_sections(), encoding="utf-8")


def text(figures: Mapping[str, Sequence[Figure]], measured_by: Mapping[str, str], postgres: str) -> str:
    """The page."""
    parts = [
        _HEAD,
        "## Figures\n",
        _table([one for found in figures.values() for one in found]),
        "## The machine\n",
        _machine(postgres),
    ]
    parts.append("## How each is measured\n")
    parts += [f"**`bin/bench {name}`.** {measured_by[name]}\n\n{_notes(found)}" for name, found in figures.items()]
    return "\n".join(parts).rstrip() + "\n"


def _table(figures: Sequence[Figure]) -> str:
    rows = [
        f"| {one.name} | {shown(one.median)} {one.unit} | {one.ratio:.2f} of {one.yardstick} ({shown(one.yardstick_median)}) "
        f"| {one.aim.of} {one.aim} | {'yes' if one.is_met else '**no**'} |"
        for one in figures
    ]
    return "\n".join(["| | median | ratio | aim | met |", "|---|---|---|---|---|", *rows]) + "\n"


def _notes(figures: Sequence[Figure]) -> str:
    return "\n".join(f"- {one.name}: {one.note}" for one in figures if one.note) + "\n"


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
