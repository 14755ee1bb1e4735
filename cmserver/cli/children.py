"""Starts the processes beside the first one of `cmserver run`, restarts those that end, and stops them."""

from __future__ import annotations

import asyncio
import time

from cmserver.base.configuration import BadSetting
from cmserver.base.logs import get_logger
from cmserver.base.own_command import build_own_command
from cmserver.base.waiting import wait_any
from cmserver.cli.child import STOPPING_SECONDS, ChildOrder, encode_order
from cmserver.cli.exit_codes import ExitCode

log = get_logger(__name__)

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0


async def keep_child_running(order: ChildOrder, stop: asyncio.Event) -> None:
    """Run the child until `stop`, and let it finish what it has begun; restart it, after a growing pause, whenever it ends.

    BadSetting when it ends because a setting is wrong: its own message stands on standard error.
    """
    pause_seconds = _FIRST_PAUSE_SECONDS
    while not stop.is_set():
        process, started_at = await _start(order), time.monotonic()
        log.info("process.started", process=order.role, pid=process.pid)
        ended = asyncio.create_task(process.wait())
        await wait_any(stop, ended)
        if stop.is_set():
            await _stop(process, ended, order)
            return
        code = await ended
        if code == ExitCode.USAGE:
            raise BadSetting(f"The process of the {order.role} cannot start: see the message above.")
        if time.monotonic() - started_at > _STEADY_SECONDS:
            pause_seconds = _FIRST_PAUSE_SECONDS
        log.warning(
            "process.restarting",
            process=order.role,
            pid=process.pid,
            code=code,
            after_seconds=pause_seconds,
            hint=f"The process of the {order.role} ended unexpectedly. What it had in hand is done again; nothing is lost.",
        )
        await wait_any(stop, timeout_seconds=pause_seconds)
        pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)


async def _start(order: ChildOrder) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *build_own_command("--child", order.role),  # the role is for those who look at a list of processes
        stdin=asyncio.subprocess.PIPE,
        pass_fds=[] if order.listener is None else [order.listener],
        start_new_session=True,  # Ctrl-C in the terminal is for the first process, which stops the others in order
    )
    assert process.stdin is not None
    process.stdin.write(encode_order(order))
    return process


async def _stop(process: asyncio.subprocess.Process, ended: asyncio.Task[int], order: ChildOrder) -> None:
    """End the child's standard input, which tells it to stop; kill it when it takes too long."""
    assert process.stdin is not None
    process.stdin.close()
    await wait_any(ended, timeout_seconds=order.settings.drain_seconds + STOPPING_SECONDS)
    if not ended.done():
        log.warning("process.killed", process=order.role, pid=process.pid)
        process.kill()
    await ended
