"""A run of `bin/bench peers` as it is kept, compared with the last one, shown as a table, and as figures of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from tests.bench.load import ROOT
from tests.bench.measure import Aim, Figure, shown

HOW = (
    "Rounds in turn, each begun with another program. The same events of 2 kB, the same PostgreSQL with the same settings. CPU "
    "counts all processes but wrk, which stands for the callers of what is called by HTTP; that of `cmserver run` has the making "
    "of observations in it. `cmserver run` and claude-mem's server answer when the event is on PostgreSQL's disk; claude-mem's "
    "worker when it is in its memory, where a crash loses what waits, and no model is set up for it, so it does no other work. "
    "procrastinate's jobs do nothing. Memory is the proportional set size beside PostgreSQL after all rounds. `bin/bench peers` "
    "prints the table of all: plain SQL, pgqueuer, and BullMQ, too."
)
FOLDER = ROOT / "build" / "bench"
MAX_FALL = 0.2
"""A ratio that falls by more than this share fails `--check`."""
SUBJECTS = ("cmserver run", "cmserver api")
"""What the ratios are of; each is also a peer of the other."""
DRAIN = "drain, one worker"


_BESIDE = (
    ("1 connection", "cmserver run", "claude-mem 13.25.3 worker", 0.95),
    ("8 connections", "cmserver run", "claude-mem 13.25.3 worker", 2.5),
    ("64 connections", "cmserver run", "claude-mem 13.25.3 worker", 4),
    ("1 connection", "cmserver run", "claude-mem 13.15.3 worker", 0.5),
    ("8 connections", "cmserver run", "claude-mem 13.25.3 server", 4),
    (DRAIN, "cmserver api", "procrastinate", 3),
)
"""Rates on the page: measure, subject, peer, and the least ratio that is aimed at."""
_CPU_AIM_MS, _MEMORY_AIM_MIB = 1.8, 104


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one peer."""

    per_second: float
    cpu_per_thousand: float
    """CPU seconds of 1,000 events: all processes but the one that stands for the callers."""
    p50_ms: float | None = None
    p99_ms: float | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. `rounds` is by measure ("8 connections", "drain") and peer; the rounds of two peers belong together by place."""

    machine: dict[str, str]
    seconds: float
    rounds: dict[str, dict[str, list[Round]]]
    memory_mib: dict[str, float]
    names: dict[str, str]
    promises: dict[str, str]


class Fall(msgspec.Struct, frozen=True):
    """A ratio that is lower than it was."""

    ratio: str
    before: float
    now: float

    def __str__(self) -> str:
        return f"{self.ratio}: {self.now:.2f}, was {self.before:.2f}"


def ratios(run: Run) -> dict[str, float]:
    """By name, the median of the rounds' ratios; more is better for cmserver in each."""
    found: dict[str, float] = {}
    for measure, peers in run.rounds.items():
        for subject in SUBJECTS:
            for peer, theirs in peers.items():
                if subject in peers and peer != subject:
                    pairs = list(zip(peers[subject], theirs, strict=True))
                    name = f"{measure}: {subject} / {peer}"
                    found[f"{name}, events/s"] = median(ours.per_second / other.per_second for ours, other in pairs)
                    if all(ours.cpu_per_thousand and other.cpu_per_thousand for ours, other in pairs):
                        found[f"{name}, work per CPU second"] = median(
                            other.cpu_per_thousand / ours.cpu_per_thousand for ours, other in pairs
                        )
    return found


def figures(run: Run) -> list[Figure]:
    """Those of the page, as far as the run has both sides."""
    found = [
        Figure(
            name=DRAIN if measure == DRAIN else f"events beside {run.names[peer]}, {measure}",
            unit="events/s",
            yardstick=run.names[peer],
            pairs=_pairs(run.rounds[measure], subject, peer, "per_second"),
            aim=Aim(of="ratio", at_least=True, bound=bound),
        )
        for measure, subject, peer, bound in _BESIDE
        if {subject, peer} <= run.rounds.get(measure, {}).keys()
    ]
    ours, theirs, measure = "cmserver run", "claude-mem 13.25.3 worker", "8 connections"
    if {ours, theirs} <= run.rounds.get(measure, {}).keys() & run.memory_mib.keys():
        found += [
            Figure(
                name=f"CPU time of an event with its observation, {measure}",
                unit="ms",
                yardstick=f"{run.names[theirs]}, without one",
                pairs=_pairs(run.rounds[measure], ours, theirs, "cpu_per_thousand"),
                aim=Aim(of="median", at_least=False, bound=_CPU_AIM_MS),
            ),
            Figure(
                name="memory of `cmserver run` after its events",
                unit="MiB",
                yardstick=run.names[theirs],
                pairs=[(run.memory_mib[ours], run.memory_mib[theirs])],
                aim=Aim(of="median", at_least=False, bound=_MEMORY_AIM_MIB),
            ),
        ]
    return found


def _pairs(
    peers: Mapping[str, Sequence[Round]], ours: str, theirs: str, field: Literal["per_second", "cpu_per_thousand"]
) -> list[tuple[float, float]]:
    return [(getattr(our, field), getattr(their, field)) for our, their in zip(peers[ours], peers[theirs], strict=True)]


def falls(before: Run, now: Run) -> list[Fall]:
    """The ratios of both runs that fell by more than a fifth, the worst first."""
    old, new = ratios(before), ratios(now)
    fallen = [Fall(name, old[name], new[name]) for name in old.keys() & new.keys() if new[name] < old[name] * (1 - MAX_FALL)]
    return sorted(fallen, key=lambda fall: (fall.now / fall.before, fall.ratio))


def keep(run: Run, folder: Path = FOLDER) -> Path:
    """Write it as `peers-COMMIT.json`; the same commit's older run is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"peers-{run.machine['commit'].split()[0]}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
    return path


def last_kept(folder: Path = FOLDER) -> Run | None:
    """The run with the latest time, or None."""
    runs = [msgspec.json.decode(path.read_bytes(), type=Run) for path in folder.glob("peers-*.json")]
    return max(runs, key=lambda run: run.machine["measured at"], default=None)


def section(run: Run) -> str:
    """What `bin/bench peers` prints."""
    facts = run.machine
    count = len(next(iter(next(iter(run.rounds.values())).values())))
    lines = [
        "## Beside other programs\n",
        (
            f"`bin/bench peers` at commit {facts['commit']}, {facts['measured at'][:10]}, on {facts['cores']} cores "
            f"({facts['processor']}), PostgreSQL {facts['PostgreSQL']}: {count} interleaved rounds of {run.seconds:g} s. Each cell "
            "is the median of the rounds. The same events of 2 kB, the same PostgreSQL with the same settings (every commit waits "
            "for the disk). CPU is in seconds of 1,000 events and counts all processes (the program, PostgreSQL, Redis; the "
            "process that calls a library) but wrk, which stands for the callers of what is called by HTTP. That of `cmserver run` "
            "has the making of observations in it. CPU figures and ratios are steadier than rates.\n"
        ),
        "| | when it has answered, the event is |",
        "|---|---|",
        *(f"| {run.names[peer]} | {promise} |" for peer, promise in run.promises.items()),
        "",
    ]
    for measure, peers in run.rounds.items():
        lines += [f"### {measure[:1].upper()}{measure[1:]}\n", *_table(run, measure, peers), ""]
    lines += ["### Memory\n", "Proportional set size beside PostgreSQL after all rounds.\n", "| | MiB |", "|---|---|"]
    lines += [f"| {run.names[peer]} | {shown(mib)} |" for peer, mib in run.memory_mib.items()]
    return "\n".join(lines) + "\n"


def _table(run: Run, measure: str, peers: Mapping[str, Sequence[Round]]) -> list[str]:
    subjects = [subject for subject in SUBJECTS if subject in peers]
    found = ratios(run)
    head = ["", "events/s", "p50 ms", "p99 ms", "CPU s", *(f"{subject}: rate, work per CPU second" for subject in subjects)]
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for peer, rounds in peers.items():
        cells = [run.names[peer], shown(median(round_.per_second for round_ in rounds))]
        cells += [_median_ms([round_.p50_ms for round_ in rounds]), _median_ms([round_.p99_ms for round_ in rounds])]
        cells.append(f"{median(round_.cpu_per_thousand for round_ in rounds):.3f}")
        for subject in subjects:
            name = f"{measure}: {subject} / {peer}"
            both = [found.get(f"{name}, events/s"), found.get(f"{name}, work per CPU second")]
            cells.append("" if peer == subject else ", ".join("?" if ratio is None else f"{ratio:.2f}" for ratio in both))
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _median_ms(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return shown(median(known)) if known else ""
