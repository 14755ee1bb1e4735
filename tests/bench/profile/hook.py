"""What the hook client costs on the developer's machine, beside curl alone: elapsed time, CPU time and processes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from tests.bench.hooks import curl_command, install_client, make_checkout
from tests.bench.operations import start_role
from tests.bench.session import tool_use
from tests.bench.world import World

_FORKS = ("clone", "clone3", "fork", "vfork")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One way to send a hook's payload."""

    name: str
    p50_ms: float
    cpu_ms: float
    """User and system time of the process and its children."""
    processes: float
    """Forks and the process itself; 0 where strace is missing."""
    programs: float
    """Programs that are executed."""
    system_calls: float


def profile_hook(world: World, calls: int, folder: Path) -> list[Call]:
    """The client and curl, call by call in turn."""
    place = world.place()
    checkout = make_checkout(world.free_folder())
    with start_role(world, place, "api") as server:
        client = install_client(world.free_folder(), server.port, place.key)
        commands: dict[str, list[str]] = {
            "the hook client": [str(client / "hook"), "PostToolUse"],
            "curl alone": [str(word) for word in curl_command(client, server.port)],
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(-1, calls):  # the first one only warms up
            for name, command in commands.items():
                measured = _measure(command, checkout, number)
                if number >= 0:
                    taken[name].append(measured)
        return [
            Call(
                name=name,
                p50_ms=median(elapsed for elapsed, _ in taken[name]),
                cpu_ms=sum(cpu for _, cpu in taken[name]) / calls,
                **_traced(command, checkout, folder),
            )
            for name, command in commands.items()
        ]


def _measure(command: Sequence[str], checkout: Path, number: int) -> tuple[float, float]:
    """Elapsed and CPU milliseconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _send(command, checkout, number)
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _send(command: Sequence[str], checkout: Path, number: int) -> None:
    payload = json.dumps({**tool_use(3), "tool_use_id": f"toolu_p{number}{time.time_ns()}", "cwd": str(checkout)}).encode()
    env = {"PATH": os.environ["PATH"], "HOME": str(checkout.parent)}
    subprocess.run(command, cwd=checkout, env=env, input=payload, capture_output=True, check=True)


def _traced(command: Sequence[str], checkout: Path, folder: Path) -> dict[str, float]:
    """Counts of one call."""
    output = folder / "hook-calls"
    try:
        _send(["strace", "-f", "-c", "-o", str(output), *command], checkout, 0)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return {"processes": 0, "programs": 0, "system_calls": 0}
    counts = counted_calls(output.read_text(encoding="utf-8"))
    return {
        "processes": 1 + sum(counts.get(name, 0) for name in _FORKS),
        "programs": counts.get("execve", 0),
        "system_calls": sum(counts.values()),
    }


def counted_calls(summary: str) -> dict[str, int]:
    """Successful calls by name in the table that `strace -c` prints."""
    counts: dict[str, int] = {}
    for line in summary.splitlines():
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
            failed = int(words[4]) if len(words) == 6 else 0
            counts[words[-1]] = int(words[3]) - failed
    return counts
