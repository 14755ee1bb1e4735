"""Where the time of one operation goes, as `bin/bench profile` keeps and shows it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from tests.bench.load import ROOT
from tests.bench.measure import shown
from tests.bench.operations import Cost
from tests.bench.profile.hook import Call, counted_calls

FILE = ROOT / "docs" / "reference" / "bench" / "profile.json"
_TOP_PLACES = 12
_TOP_FUNCTIONS = 8
_TOP_CALLS = 8
_TOP_STATEMENTS = 8
_FRAME = re.compile(r"^(?P<function>.+) \((?P<file>.+?)(:\d+)?\)$")


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of pg_stat_statements, per operation."""

    text: str
    calls: float
    microseconds: float


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything per operation: microseconds of CPU time, counts and bytes."""

    name: str
    cost: Cost
    places: dict[str, float]
    """Microseconds of the program by room or library: its own frames, not those that it calls."""
    functions: dict[str, float]
    system_calls: dict[str, float]
    statements: list[Statement] = []


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    machine: dict[str, str]
    operations: list[Operation]
    hooks: list[Call] = []


def place_of(file: str) -> str:
    """The room of cmserver, or the library, that a file belongs to."""
    parts = Path(file).parts
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1].removesuffix(".py")
    if "cmserver" in parts:
        room = parts[len(parts) - 1 - parts[::-1].index("cmserver") + 1]
        return f"cmserver/{room}".removesuffix(".py")
    return "Python's library"


def shares(folded: Iterable[str]) -> tuple[dict[str, float], dict[str, float]]:
    """The shares (0 to 1) of places and of functions in py-spy's raw output: lines of `frame;frame;frame count`."""
    places: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for line in folded:
        stack, _, count = line.rpartition(" ")
        found = _FRAME.match(stack.rpartition(";")[2])
        if not found or not count.isdigit():
            continue
        place = place_of(found["file"])
        places[place] += int(count)
        functions[f"{place}: {found['function']}"] += int(count)
    total = sum(places.values())
    return _of(places, total, _TOP_PLACES), _of(functions, total, _TOP_FUNCTIONS)


def _of(counter: Counter[str], total: int, most: int) -> dict[str, float]:
    return {name: count / total for name, count in counter.most_common(most)}


def system_calls(summary: str, operations: int) -> dict[str, float]:
    """Calls per operation in the table that `strace -c` prints."""
    found = {name: count / operations for name, count in counted_calls(summary).items()}
    return dict(sorted(found.items(), key=lambda item: -item[1])[:_TOP_CALLS])


def keep(profile: Profile, file: Path = FILE) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n")
    return file


def last_kept(file: Path = FILE) -> Profile | None:
    return msgspec.json.decode(file.read_bytes(), type=Profile) if file.is_file() else None


def section(profile: Profile) -> str:
    """The part of docs/reference/performance.md about it, from its heading on."""
    facts = profile.machine
    lines = [
        "## Where the time goes\n",
        (
            f"`bin/bench profile` at commit {facts['commit']}, {facts['date']}, PostgreSQL {facts['PostgreSQL']}. CPU time of one "
            "operation in microseconds, by the counters of the processes; its parts by py-spy's samples of the program (a place's "
            "own frames, C code under the Python function that called it). Rows, WAL and buffers are PostgreSQL's counters; index "
            "entries count every index of a table for each of its new rows. Statements are from pg_stat_statements of Debian's "
            "PostgreSQL (without pgvector), their microseconds are elapsed time.\n"
        ),
        "| | program, µs | PostgreSQL, µs | rows written | index entries | WAL, bytes | buffers | system calls |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for operation in profile.operations:
        cost = operation.cost
        cells = [cost.program_us, cost.postgres_us, sum(cost.rows.values()), cost.index_entries, cost.wal_bytes, cost.buffers]
        cells.append(sum(operation.system_calls.values()))
        lines.append(f"| {operation.name} | {' | '.join(map(shown, cells))} |")
    for operation in profile.operations:
        lines += ["", f"**{operation.name[:1].upper()}{operation.name[1:]}.**", ""]
        lines += _parts("By place", operation.places, "µs") + _parts("Hottest functions", operation.functions, "µs")
        lines += _parts("Rows", operation.cost.rows, "") + _parts("System calls", operation.system_calls, "")
        if operation.statements:
            lines += ["", "| statement | calls | µs |", "|---|---|---|"]
            lines += [
                f"| `{statement.text}` | {shown(statement.calls)} | {shown(statement.microseconds)} |"
                for statement in operation.statements[:_TOP_STATEMENTS]
            ]
    if profile.hooks:
        lines += ["", "**A hook on the developer's machine.**", "", "| | p50, ms | CPU, ms | processes | programs | system calls |"]
        lines.append("|---|---|---|---|---|---|")
        for call in profile.hooks:
            cells = [call.p50_ms, call.cpu_ms, call.processes, call.programs, call.system_calls]
            lines.append(f"| {call.name} | {' | '.join(map(shown, cells))} |")
    return "\n".join(lines) + "\n"


def _parts(title: str, values: Mapping[str, float], unit: str) -> list[str]:
    if not values:
        return []
    listed = ", ".join(f"{name} {shown(value)}{' ' + unit if unit else ''}" for name, value in values.items())
    return [f"- {title}: {listed}."]
