"""What an event costs and takes as the database grows, and what follows from it: docs/reference/sizing.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.bench.load import ROOT
from tests.bench.measure import shown
from tests.bench.month import record as month_record
from tests.bench.operations import Cost

FILE = ROOT / "build" / "bench" / "growth.json"
PAGE = ROOT / "docs" / "reference" / "sizing.md"
_EVENTS_A_DAY = 400
"""Of a person who works with an agent all day: ten sessions of forty tool uses."""
_WORKDAYS = 220
_LARGEST_TABLES = 12
GIB = 2**30


class Table(msgspec.Struct, frozen=True):
    """Bytes of a table with its TOAST, and of its indexes."""

    name: str
    table_bytes: int
    index_bytes: int


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A database with so many events."""

    events: int
    database_bytes: int
    tables: list[Table]
    costs: dict[str, Cost]


class Churn(msgspec.Struct, frozen=True, kw_only=True):
    """Autovacuum's settings of the queue's tables under load, and what was left after it."""

    name: str
    events: int
    lanes_bytes: int
    jobs_bytes: int
    dead_share: float
    """Dead rows among the rows of lanes and jobs."""
    vacuums: int
    postgres_us: float
    """CPU time of PostgreSQL for an event, autovacuum's included."""


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU time of an event, to its observation, with so many processes for the API and as many workers."""

    processes: int
    program_us: float
    """Without what the processes spend idle."""
    postgres_us: float
    idle_ms: float
    """Milliseconds a second of the program and PostgreSQL together, when nothing comes in."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    machine: dict[str, str]
    stages: list[Stage]
    churns: list[Churn] = []
    hosts: list[Hosts] = []


def keep(growth: Growth, file: Path = FILE) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(growth), indent=1) + b"\n")
    return file


def last_kept(file: Path = FILE) -> Growth | None:
    return msgspec.json.decode(file.read_bytes(), type=Growth) if file.is_file() else None


def write_page() -> None:
    """From what was kept last; not while one of both is missing."""
    growth, month = last_kept(), month_record.last_kept()
    if growth and month:
        PAGE.write_text(page(growth, month), encoding="utf-8")


def page(growth: Growth, month: month_record.Month | None) -> str:
    """The whole page. The bytes of an event with its observations are the month's, whose events are those of real agents."""
    parts = ["# Sizing\n", "Written by `bin/bench growth --keep` and `bin/bench month --keep`, when both were run; do not edit.\n"]
    if month:
        parts += [_answer(growth, month)]
    facts = growth.machine
    parts += [
        "## What an operation costs as the database grows\n",
        (
            f"At commit {facts['commit']}, {facts['date']}, on {facts['cores']} cores ({facts['processor']}), PostgreSQL "
            f"{facts['PostgreSQL']}, at a load average of {facts.get('load at the end', 'unknown')}. Microseconds of CPU time, of "
            "the program and of PostgreSQL, for one operation in a database "
            "with so many events, all of one project, with their jobs, logs, audit rows and an observation of every fifth. Search "
            "here is by words; that by meaning is measured up to a million observations in [performance](performance.md).\n"
        ),
        *_costs(growth.stages),
        "\n## What is stored\n",
        (
            "Payloads of the events here are short (120 characters), so that what is beside them shows. MiB of the table, and "
            "of its indexes.\n"
        ),
        *_sizes(growth.stages),
    ]
    if growth.hosts:
        parts += ["\n## Processes and workers\n", *_hosts(growth.hosts)]
    if growth.churns:
        parts += ["\n## Autovacuum of the queue's tables\n", *_churns(growth.churns)]
    if month:
        parts += ["", month_record.section(month)]
    return "\n".join(parts).rstrip() + "\n"


def _answer(growth: Growth, month: month_record.Month) -> str:
    bytes_per_event = month.days[-1].bytes_per_event
    cpu_seconds = month.days[-1].cpu_ms_per_event / 1000
    rows = [
        "| people | events a year | disk after a year | after five years | busiest hour: share of one core | memory |",
        "|---|---|---|---|---|---|",
    ]
    memory = f"{month.days[-1].memory_mib + month.days[-1].postgres_mib + 256:.0f} MiB"
    for people in (1, 5, 20, 100):
        yearly = people * _EVENTS_A_DAY * _WORKDAYS
        hourly = people * _EVENTS_A_DAY / 8 * 3  # an hour in which three times as much happens
        disk = yearly * bytes_per_event / GIB
        cells = [f"{people}", f"{yearly:,}", f"{disk:.1f} GiB", f"{disk * 5:.0f} GiB", f"{hourly * cpu_seconds / 3600:.2%}", memory]
        rows.append(f"| {' | '.join(cells)} |")
    largest = growth.stages[-1]
    return "\n".join(
        [
            "## What hardware holds how many people\n",
            (
                f"A person who works with an agent all day causes about {_EVENTS_A_DAY} events (ten sessions of forty tool "
                f"uses) on {_WORKDAYS} days a year. An event with its job, logs, observations and indexes takes "
                f"{bytes_per_event:,.0f} bytes and {cpu_seconds * 1000:.1f} ms of CPU time until its observation is stored and "
                "found; both are of the [simulated month](#a-month) with tool uses of 2 kB, which is what is "
                "stored of larger ones, too, once 16,000 characters are left of each field. A model's time "
                "is not in it.\n"
            ),
            *rows,
            "",
            (
                "Two cores, 1 GiB of memory and a disk of this size are enough for each line. Memory is the program's and "
                "PostgreSQL's with its shared buffers (256 MiB) full; more of it keeps more of the indexes in the system's cache, "
                f"which searches feel. The largest database that was measured below had {largest.events:,} events and "
                f"{largest.database_bytes / GIB:.1f} GiB. Retention makes the disk's size a choice: see [let things "
                "expire](../howto/let-things-expire.md).\n"
            ),
        ]
    )


def _costs(stages: Sequence[Stage]) -> list[str]:
    head = ["", *(f"{stage.events:,} events" for stage in stages)]
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in stages[0].costs:
        cells = [name]
        for stage in stages:
            cost = stage.costs[name]
            cells.append(f"{shown(cost.program_us)} + {shown(cost.postgres_us)}")
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _sizes(stages: Sequence[Stage]) -> list[str]:
    head = ["", *(f"{stage.events:,} events" for stage in stages)]
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    largest = sorted(stages[-1].tables, key=lambda table: -(table.table_bytes + table.index_bytes))[:_LARGEST_TABLES]
    for table in largest:
        cells = [f"`{table.name}`"]
        for stage in stages:
            found = next((other for other in stage.tables if other.name == table.name), Table(table.name, 0, 0))
            cells.append(f"{shown(found.table_bytes / 2**20)} + {shown(found.index_bytes / 2**20)}")
        rows.append(f"| {' | '.join(cells)} |")
    rows.append(f"| the whole database | {' | '.join(shown(stage.database_bytes / 2**20) for stage in stages)} |")
    rows.append(f"| bytes an event | {' | '.join(shown(stage.database_bytes / stage.events) for stage in stages)} |")
    return rows


def _hosts(hosts: Sequence[Hosts]) -> list[str]:
    rows = [
        (
            "A hundred events a second over eight connections, each with its observation by the rules, spread over so many "
            "processes for the API and as many workers. What they spend idle is taken off the first three columns.\n"
        ),
        "| processes and workers | program, µs an event | PostgreSQL, µs an event | both, beside one of each | idle, ms a second |",
        "|---|---|---|---|---|",
    ]
    first = hosts[0].program_us + hosts[0].postgres_us
    for run in hosts:
        both = f"{(run.program_us + run.postgres_us) / first:.2f}"
        cells = [f"{run.processes} and {run.processes}", shown(run.program_us), shown(run.postgres_us), both, shown(run.idle_ms)]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _churns(churns: Sequence[Churn]) -> list[str]:
    rows = [
        (
            f"Events come in and are worked off at full speed by `cmserver run`, {churns[0].events:,} for each of the settings; "
            "sizes with indexes.\n"
        ),
        "| settings of lanes and jobs | lanes, MiB | jobs, MiB | dead rows | vacuums | PostgreSQL, µs an event |",
        "|---|---|---|---|---|---|",
    ]
    for churn in churns:
        cells = [churn.name, shown(churn.lanes_bytes / 2**20), shown(churn.jobs_bytes / 2**20), f"{churn.dead_share:.1%}"]
        rows.append(f"| {' | '.join([*cells, str(churn.vacuums), shown(churn.postgres_us)])} |")
    return rows
