"""What an event costs when more processes share the work: CPU time of all of them and of PostgreSQL."""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median

import msgspec

from tests.bench.cpu import cpu_seconds
from tests.bench.drain import wait_until_ended
from tests.bench.growth.record import Hosts
from tests.bench.load import loader
from tests.bench.operations import Server, start_role
from tests.bench.world import World

_CONNECTIONS = 8
_PER_SECOND = 100.0
"""Of all connections: less than one process can take, so that no queue changes how much is done at once."""
_IDLE_SECONDS = 10.0


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of one run."""

    program_us: float
    """Microseconds an event, without what the processes spend idle."""
    postgres_us: float
    idle_ms: float
    """Milliseconds a second, of the program and PostgreSQL together, when nothing comes in."""


def measure_hosts(world: World, counts: tuple[int, ...], events: int, rounds: int) -> list[Hosts]:
    """With so many processes for the API and as many workers, in alternating rounds; medians."""
    spent = {processes: list[Spent]() for processes in counts}
    for _ in range(rounds):
        for processes in counts:
            spent[processes].append(_measure(world, processes, events))
    return [
        Hosts(
            processes=processes,
            program_us=median(run.program_us for run in runs),
            postgres_us=median(run.postgres_us for run in runs),
            idle_ms=median(run.idle_ms for run in runs),
        )
        for processes, runs in spent.items()
    ]


def _measure(world: World, processes: int, events: int) -> Spent:
    place = world.place()
    with ExitStack() as stack:
        roles = [name for name in ("api", "worker") for _ in range(processes)]
        servers = [stack.enter_context(start_role(world, place, name)) for name in roles]
        sender = stack.enter_context(loader())
        ports = [server.port for server in servers if server.port]
        order = place.http(*ports, connections=_CONNECTIONS, seconds=600, per_second=_PER_SECOND / _CONNECTIONS)
        sender.send(msgspec.structs.replace(order, requests=events // 10))
        wait_until_ended(place)

        start = _cpu(servers, world)
        time.sleep(_IDLE_SECONDS)
        idle_end, began = _cpu(servers, world), time.monotonic()
        sender.send(msgspec.structs.replace(order, requests=events))
        wait_until_ended(place)
        end, seconds = _cpu(servers, world), time.monotonic() - began
    idle = [(after - before) / _IDLE_SECONDS for before, after in zip(start, idle_end, strict=True)]
    program, postgres = (
        (after - before - rate * seconds) * 1e6 / events for before, after, rate in zip(idle_end, end, idle, strict=True)
    )
    return Spent(program_us=program, postgres_us=postgres, idle_ms=sum(idle) * 1000)


def _cpu(servers: list[Server], world: World) -> tuple[float, float]:
    """Seconds of the program's processes, and of PostgreSQL."""
    return sum(cpu_seconds(server.pid) for server in servers), cpu_seconds(world.postmaster)
