"""Starts the processes beside the first one of `cmserver run`, restarts those that end, and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from importlib import import_module
from typing import Literal

import msgspec

from cmserver.base.configuration import BadSetting
from cmserver.base.logs import get_logger
from cmserver.base.own_command import build_own_command
from cmserver.base.waiting import wait_any
from cmserver.cli.child import ENDING_SIGNALS, STOPPING_SECONDS, ChildOrder, encode_order, run_forked
from cmserver.cli.exit_codes import ExitCode

log = get_logger(__name__)

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0


class ForkedChild(msgspec.Struct, frozen=True):
    """A process that waits for its order, and has been forked for it."""

    pid: int
    lifeline: int
    """The other end of its standard input."""
    sign_of_life: int
    """A pipe that ends with the process."""


def fork_children(listener: socket.socket, role: Literal["all", "api"], count: int) -> list[ForkedChild]:
    """Fork so many processes while this one has neither threads nor connections: they share what it has imported.

    None on macOS, whose own libraries do not survive a fork.
    """
    if sys.platform == "darwin" or not count:
        return []
    import_module("cmserver.cli.api_server")
    if role == "all":
        import_module("cmserver.worker")
    gc.collect()
    gc.freeze()  # a collection writes to all that it looks at, and so makes copies of it
    return [_fork(listener) for _ in range(count)]


def _fork(listener: socket.socket) -> ForkedChild:
    order, lifeline = os.pipe()
    sign_of_life, living = os.pipe()
    blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)  # what Python runs at a fork would swallow them
    try:
        pid = os.fork()
        if not pid:
            run_forked(order, living, listener)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)
    os.close(order)
    os.close(living)
    return ForkedChild(pid, lifeline, sign_of_life)


async def keep_child_running(order: ChildOrder, stop: asyncio.Event, forked: ForkedChild | None) -> None:
    """Run the child until `stop`, and let it finish what it has begun; restart it, after a growing pause, whenever it ends.

    `forked` is used first. What comes after it is started from nothing: this process has threads by then, and forks no more.
    BadSetting when it ends because a setting is wrong: its own message stands on standard error.
    """
    pause_seconds = _FIRST_PAUSE_SECONDS
    while not stop.is_set():
        process, started_at = await _start(order, forked), time.monotonic()
        forked = None
        log.info("process.started", process=order.role, pid=process.pid)
        await wait_any(stop, process.ended)
        if stop.is_set():
            await _stop(process, order)
            return
        os.close(process.lifeline)
        code = await process.ended
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


class _Child(msgspec.Struct, frozen=True):
    pid: int
    lifeline: int
    ended: asyncio.Task[int]


async def _start(order: ChildOrder, forked: ForkedChild | None) -> _Child:
    if forked is not None:
        process = _Child(forked.pid, forked.lifeline, asyncio.create_task(_wait_for_end(forked)))
    else:
        standard_input, lifeline = os.pipe()
        executed = await asyncio.create_subprocess_exec(
            *build_own_command("--child", order.role),  # the role is for a list of processes, where a fork looks as its parent does
            stdin=standard_input,
            pass_fds=[] if order.listener is None else [order.listener],
            start_new_session=True,  # Ctrl-C in the terminal is for the first process, which stops the others in order
        )
        os.close(standard_input)
        process = _Child(executed.pid, lifeline, asyncio.create_task(executed.wait()))
    with contextlib.suppress(BrokenPipeError):  # it has ended already
        os.write(process.lifeline, encode_order(order))
    return process


async def _wait_for_end(forked: ForkedChild) -> int:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(forked.sign_of_life, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(forked.sign_of_life)
        os.close(forked.sign_of_life)
    return os.waitstatus_to_exitcode(os.waitpid(forked.pid, 0)[1])  # noqa: ASYNC222 - it has ended


async def _stop(process: _Child, order: ChildOrder) -> None:
    """End the child's standard input, which tells it to stop; kill it when it takes too long."""
    os.close(process.lifeline)
    await wait_any(process.ended, timeout_seconds=order.settings.drain_seconds + STOPPING_SECONDS)
    if not process.ended.done():
        log.warning("process.killed", process=order.role, pid=process.pid)
        os.kill(process.pid, signal.SIGKILL)
    await process.ended
