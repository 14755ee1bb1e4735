"""What each kind of fault does to the system, and how it ends."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import psycopg

from cmserver.embedded.files import SetupError
from tests.faults.load import FILLER, HookAgent, fill
from tests.faults.plan import Fault, can_mount
from tests.faults.provider import MoodyProvider
from tests.faults.proxy import Proxy
from tests.faults.system import FrozenWorker, System, descendants

End = Callable[[], None]

_STEPS = (-86_400, -3_600, -30, 30, 3_600, 86_400)
_POSTGRES_STEPS = (-2, 30, 3_600)
"""What PostgreSQL's clock is set back by, work waits longer by: only a little of it fits into a storm."""
_FILE_BYTES = 1 << 20
_ROOM_LEFT = (0, 20_000, 400_000)


def begin(fault: Fault, system: System, provider: MoodyProvider, agent: HookAgent) -> End:
    """Let it happen; returns what ends it."""
    family, _, part = fault.kind.partition("-")
    match family:
        case "kill":
            return _kill(fault, system, part)
        case "freeze":
            return _freeze(system, system.find(part, fault.dice))
        case "net":
            assert system.proxy is not None
            return _break_net(fault, system.proxy, part)
        case "disk":
            return _fill_disk(fault, system, agent, part)
        case "memory":
            return _limit_memory(system.find(part, fault.dice), fault.dice)
        case "provider":
            provider.begin(fault.kind)
            return lambda: provider.end(fault.kind)
        case "clock":
            return _set_clock(fault, system, part)
        case _:
            raise AssertionError(fault.kind)


def _nothing() -> None:
    pass


def _start_again(system: System) -> None:
    """PostgreSQL, unless its disk is still full: it would start, take nobody, and be waited for. Who makes room starts it, too."""
    if (system.disk / FILLER).exists():
        return
    with suppress(SetupError, OSError, psycopg.Error):
        system.keep_postgres()


def _kill(fault: Fault, system: System, role: str) -> End:
    pid = system.find(role, fault.dice)
    if pid:
        system.kill(pid)
    return lambda: _start_again(system)


def _freeze(system: System, pid: int) -> End:
    """Stop the process. Workers whose lease is over when it goes on must claim nothing more."""
    workers = system.ask("SELECT worker_id FROM generation_workers WHERE label LIKE %(label)s", label=f"%:{pid}")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        live = {row["live_workers"] for row in system.ask("SELECT live_workers()")}
        newest = system.ask("SELECT coalesce(max(id), 0) AS id FROM observation_generation_job_events")
        if newest:
            ids = [int(str(row["worker_id"])) for row in workers if row["worker_id"] not in live]
            system.frozen += [FrozenWorker(worker_id=worker_id, log_id=int(str(newest[0]["id"]))) for worker_id in ids]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return go_on


def _break_net(fault: Fault, proxy: Proxy, how: str) -> End:
    match how:
        case "cut":
            proxy.cut()
        case "refuse":
            proxy.refuse(True)
            proxy.cut()
            return lambda: proxy.refuse(False)
        case "pause":
            proxy.pause(True)
            return lambda: proxy.pause(False)
        case "slow":
            proxy.slow(0.05 + 0.2 * fault.dice)
            return lambda: proxy.slow(0)
        case "half":
            proxy.half_close()
            return proxy.release
        case "silent":
            proxy.silence()
        case _:
            raise AssertionError(how)
    return _nothing


def _fill_disk(fault: Fault, system: System, agent: HookAgent, part: str) -> End:
    if can_mount():
        filler = fill(system.disk if part == "postgres" else system.client, Random(fault.dice).choice(_ROOM_LEFT))

        def make_room() -> None:
            filler.unlink(missing_ok=True)
            _start_again(system)

        return make_room
    if part == "spool":
        agent.may_write = False

        def let_write() -> None:
            agent.may_write = True

        return let_write
    postgres = system.find("postgres", 0)
    _limit_files(postgres, _FILE_BYTES)

    def lift() -> None:
        _limit_files(postgres, resource.RLIM_INFINITY)
        _start_again(system)

    return lift


def _limit_files(pid: int, size: int) -> None:
    """No file of the process or of its children grows beyond that size."""
    for member in [pid, *descendants(pid)]:
        with suppress(OSError):
            resource.prlimit(member, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _limit_memory(pid: int, dice: float) -> End:
    """Let the process have at most a few megabytes more than it has now."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        soft = pages * resource.getpagesize() + int(dice * (8 << 20))
        before = resource.prlimit(pid, resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))
    except OSError:
        return _nothing

    def restore() -> None:
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_AS, before)

    return restore


def _set_clock(fault: Fault, system: System, part: str) -> End:
    """Step the clocks of the processes with that role."""
    if part == "postgres":
        names, steps = ["postgres"], _POSTGRES_STEPS
    else:
        names, steps = [name for name in system.processes if name.startswith(part) or name == "run"], _STEPS
    step = steps[int(fault.dice * len(steps))]
    for name in names:
        system.clock(name).write_text(f"{step:+d}\n")

    def restore() -> None:
        for name in names:
            system.clock(name).write_text("+0\n")

    return restore
