"""What each day of the simulated month measured; and whether it stayed flat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from tests.bench.load import ROOT
from tests.bench.measure import shown

FOLDER = ROOT / "build" / "bench"
JSON = "month.json"
WEEK = 7
WORKDAYS = 5


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated working day, measured in its idle night."""

    day: int
    """From 1."""
    events: int
    hook_p99_ms: float
    context_p99_ms: float
    search_p99_ms: float
    cpu_ms_per_event: float
    """Of the program and PostgreSQL, with the making of observations."""
    memory_mib: float
    """Proportional set size of the program's processes."""
    postgres_mib: float
    file_descriptors: int
    connections: int
    bytes_per_event: float
    """What the database has grown by since it was empty, over all events so far."""
    queue_bytes: int
    """Tables of the queue that do not grow with what is remembered: lanes, workers, pauses, procrastinate's, with their indexes."""
    dead_share: float
    """Dead rows among all rows of the tables."""


class Series(msgspec.Struct, frozen=True):
    """One line of the table, and how much it may grow from the second week to the last."""

    field: str
    title: str
    unit: str
    max_growth: float


SERIES = (
    Series("hook_p99_ms", "hook, p99", "ms", 1.5),
    Series("context_p99_ms", "context at a session's start, p99", "ms", 1.5),
    Series("search_p99_ms", "search, p99", "ms", 1.5),
    Series("cpu_ms_per_event", "CPU time of an event", "ms", 1.25),
    Series("memory_mib", "memory of the program", "MiB", 1.1),
    Series("file_descriptors", "file descriptors", "", 1.1),
    Series("connections", "database connections", "", 1.1),
    Series("bytes_per_event", "database, per event", "bytes", 1.1),
    Series("queue_bytes", "tables of the queue", "bytes", 1.5),
    Series("dead_share", "dead rows", "share", 1.5),
)


class Month(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    machine: dict[str, str]
    people: int
    days: list[Day]
    outages: list[int]
    """Days on which the provider was away for a part."""
    restarts: list[int]
    kills: list[int]
    """Days on which the program was killed (SIGKILL) at work, and started again."""
    verified: bool
    lost_events: int
    """Hooks that were acknowledged and are not in the database."""
    doubled_events: int
    """Events in the database beyond those that were sent."""


def rises(days: Sequence[Day]) -> list[str]:
    """The series whose last week is higher than its second by more than it may be, in words. Empty for less than three weeks."""
    by_week: dict[int, list[Day]] = {}
    for day in days:
        by_week.setdefault((day.day - 1) // WEEK, []).append(day)
    if len(by_week) < 3:
        return []
    second, last = by_week[sorted(by_week)[1]], by_week[max(by_week)]
    found: list[str] = []
    for series in SERIES:
        before, after = (median(getattr(day, series.field) for day in week) for week in (second, last))
        if after > before * series.max_growth:
            unit = f" {series.unit}" if series.unit else ""
            found.append(f"{series.title}: {shown(before)}{unit} in the second week, {shown(after)}{unit} in the last")
    return found


def keep(month: Month, folder: Path = FOLDER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / JSON
    file.write_bytes(msgspec.json.format(msgspec.json.encode(month), indent=1) + b"\n")
    return file


def last_kept(folder: Path = FOLDER) -> Month | None:
    file = folder / JSON
    return msgspec.json.decode(file.read_bytes(), type=Month) if file.is_file() else None


def section(month: Month) -> str:
    """The part of docs/reference/sizing.md about it, from its heading on."""
    facts, days = month.machine, month.days
    events = sum(day.events for day in days)
    lines = [
        "## A month\n",
        (
            f"`bin/bench month` at commit {facts['commit']}, {facts['date']}: {month.people} people and their agents for "
            f"{days[-1].day} days, one day after the other at full speed ({events:,} events on {len(days)} working days), on "
            f"`cmserver run` with a model that costs no time. The model was away on {_days(month.outages)}, the program was "
            f"stopped and started on {_days(month.restarts)}, and killed at work on {_days(month.kills)}. Each night waits "
            "until the queue is empty.\n"
        ),
        f"At the end `cmserver verify` {'holds' if month.verified else '**does not hold**'}; acknowledged events that are not "
        f"there: {month.lost_events}; events that are there twice: {month.doubled_events}. " + _flatness(days),
        "",
        "| | first day | second week | last week |",
        "|---|---|---|---|",
    ]
    for series in SERIES:
        weeks = [
            [getattr(day, series.field) for day in days if (day.day - 1) // WEEK == week]
            for week in (1, (days[-1].day - 1) // WEEK)
        ]
        cells = [getattr(days[0], series.field), *(median(week) if week else None for week in weeks)]
        lines.append(
            f"| {series.title}{f', {series.unit}' if series.unit else ''} | "
            f"{' | '.join('' if cell is None else shown(cell) for cell in cells)} |"
        )
    return "\n".join(lines) + "\n"


def _flatness(days: Sequence[Day]) -> str:
    if (days[-1].day - 1) // WEEK < 2:
        return "It was too short to say whether anything grows."
    if rising := rises(days):
        return f"**Not flat:** {'; '.join(rising)}."
    return "Nothing grew from the second week to the last but what is remembered."


def _days(numbers: Sequence[int]) -> str:
    return f"day{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}" if numbers else "no day"
