"""What callers of `cmserver run` wait while its own worker is busy, and what all its processes take."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from tests.bench.cpu import cpu_seconds, descendants
from tests.bench.drain import wait_until_ended
from tests.bench.load import Done, loader
from tests.bench.measure import Aim, Figure, spread
from tests.bench.scale import Scale
from tests.bench.world import World, free_port, program, role, value

HOW = (
    "`cmserver run` with default settings but no debounce, so that its worker is busy with rules all along; beside it, on a "
    "database of its own, `cmserver run --role api` without any worker, which is the yardstick. Events of 2 kB over HTTP, as in "
    "`ingest`; each side waits until its queue is empty before the other begins. CPU time is that of the program and of PostgreSQL "
    "from the first event to the end of its observation. Memory is the proportional set size (PSS) of all processes of the program "
    "but PostgreSQL's, when all is done."
)
_CONNECTIONS = (1, 8, 64)
_MEMORY_BATCH = 20
_EVENTS_PER_SECOND = 5_000
"""More than are taken so: what is missing then is sent again."""


def run(world: World, scale: Scale) -> list[Figure]:
    """Both sides in turn at each number of connections, then the memory after `backlog` events."""
    pairs: dict[int, list[tuple[float, float]]] = {connections: [] for connections in _CONNECTIONS}
    waits: dict[int, list[float]] = {connections: [] for connections in _CONNECTIONS}
    costs: list[tuple[float, float]] = []
    alone, busy = world.place(), world.place()
    settings = {"provider": "offline", "generation_debounce_seconds": 0}
    busy_port = free_port()
    command = [sys.executable, "-m", "cmserver", "run"]
    with ExitStack() as stack:
        sender = stack.enter_context(loader())
        alone_port = stack.enter_context(role(world, alone, "api", **settings))
        given = {"database_url": busy.url, "log_level": "error", **settings}
        process = stack.enter_context(program(command, given, world.free_folder(), port=busy_port))

        def cpu() -> float:
            return cpu_seconds(process.pid) + cpu_seconds(world.postmaster)

        for _ in range(scale.rounds):
            for connections in _CONNECTIONS:
                yardstick: Done = sender.send(alone.http(alone_port, connections=connections, seconds=scale.seconds))
                before, stored = cpu(), _count(busy.url)
                done: Done = sender.send(busy.http(busy_port, connections=connections, seconds=scale.seconds))
                wait_until_ended(busy)
                events = _count(busy.url) - stored
                pairs[connections].append((done.per_second, yardstick.per_second))
                waits[connections] += done.milliseconds
                if connections == 1:
                    costs.append(((cpu() - before) * 1000 / events, 1.0))
        while (missing := scale.backlog - _count(busy.url)) > 0:
            seconds = max(0.2, missing / _EVENTS_PER_SECOND)
            sender.send(busy.http(busy_port, connections=8, seconds=seconds, batch=_MEMORY_BATCH))
        wait_until_ended(busy)
        memory = sum(_pss_mib(pid) for pid in descendants(process.pid) if not _is_postgres(pid))
    figures = [
        Figure(
            name=f"POST /v1/events while the worker is busy, {connections} connection{'s' if connections > 1 else ''}",
            unit="events/s",
            yardstick="the API without a worker",
            pairs=pairs[connections],
            aim=Aim(of="ratio", at_least=True, bound=0.5),
            note=spread(waits[connections]),
        )
        for connections in _CONNECTIONS
    ]
    return [
        *figures,
        Figure(
            name="CPU time of an event until its observation is stored, with rules",
            unit="ms",
            yardstick="a millisecond",
            pairs=costs,
            aim=Aim(of="median", at_least=False, bound=1.8),
        ),
        Figure(
            name=f"memory of all processes after {scale.backlog:,} events",
            unit="MiB",
            yardstick="a MiB",
            pairs=[(memory, 1.0)],
            aim=Aim(of="median", at_least=False, bound=120),
        ),
    ]


def _count(url: str) -> int:
    return cast("int", value(url, "SELECT count(*) FROM agent_events"))


def _is_postgres(pid: int) -> bool:
    return b"postgres" in Path(f"/proc/{pid}/comm").read_bytes()


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
