"""A process that `cmserver run` starts beside itself: the worker, or one more process of the API.

Standard input is its lifeline: the first line says what to do, and its end, which comes also when the parent is killed, to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NoReturn

import click
import msgspec
import uvloop

from cmserver.base import logs
from cmserver.base.configuration import BadSetting
from cmserver.base.db import DatabaseUrls
from cmserver.base.errors import CmserverError, Invalid
from cmserver.base.logs import get_logger
from cmserver.base.process import return_freed_memory
from cmserver.base.server_start import RELOAD_SIGNAL, ServerStart
from cmserver.base.settings import Settings
from cmserver.base.tracing import exporting_traces
from cmserver.cli import process
from cmserver.cli.exit_codes import ExitCode, exit_code
from cmserver.models.providers import registry
from cmserver.models.providers.model import ProviderChain

log = get_logger(__name__)

_LIFELINE = 0
"""Standard input, read without a buffer: a thread that waits in Python's own would abort the end of the process."""
STOPPING_SECONDS = 10.0
"""Beyond `drain_seconds`: by then a child that was told to stop has ended, or is ended."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)

WORKER_NICENESS = 5
"""On a machine with nothing to spare, requests get three times the processor time of the worker, which can wait."""


class ChildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a child does, as its parent says it."""

    role: Literal["api", "worker"]
    settings: Settings
    urls: DatabaseUrls
    is_embedded: bool
    listener: int | None
    """Descriptor of the socket that all processes of the API accept connections from."""
    config_file: Path | None
    """What `--config` names."""
    takes_reload: bool
    """Whether the parent begins anew when it is told to."""
    not_reloaded: str | None
    """Why it goes on with the settings that it had, when it was told to."""


def reload_by(pid: int) -> Callable[[], None]:
    """Tells that process, the first one of the server, to begin anew with the settings of the model as they are now."""
    return lambda: os.kill(pid, RELOAD_SIGNAL)


def encode_order(order: ChildOrder) -> bytes:
    """The order as one line."""
    return msgspec.json.encode(order, enc_hook=str) + b"\n"


def _read_order() -> ChildOrder:
    line = b""
    while not line.endswith(b"\n") and (read := os.read(_LIFELINE, 65_536)):
        line += read
    if not line.endswith(b"\n"):  # the parent has ended before it came to that, or amid it
        sys.exit()
    return msgspec.json.decode(line, type=ChildOrder, dec_hook=lambda wanted, value: Path(value) if wanted is Path else value)


def run_forked(order: int, sign_of_life: int, listener: socket.socket) -> NoReturn:
    """Be such a process, as a fork: its order comes from that descriptor. It ends here, as what stands above is its parent's."""
    code: int = ExitCode.FAILURE
    try:
        os.setsid()  # Ctrl-C in the terminal is for the first process, which stops the others in order
        os.dup2(order, _LIFELINE)
        _close_all_but(0, 1, 2, sign_of_life, listener.fileno())
        main(listener)
        code = ExitCode.OK
    except SystemExit as ending:
        if isinstance(ending.code, str):
            click.echo(ending.code, err=True)
        else:
            code = ending.code or ExitCode.OK
    except BaseException:  # noqa: BLE001 - nobody else would tell it
        traceback.print_exc()
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or on a full disk
                    stream.flush()
        finally:
            os._exit(code)


def _close_all_but(*kept: int) -> None:
    """Close the other ends of pipes, and what the program that started the parent had left open: a lock may hang on it."""
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(descriptor)


def main(listener: socket.socket | None = None) -> None:
    """Do what standard input says until it ends. A fork has the listener already, and closes it unless the order names it."""
    for signal_number in ENDING_SIGNALS:  # until the loop has its own handlers
        signal.signal(signal_number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
    order = _read_order()
    if listener is not None and order.listener is None:
        listener.close()
    return_freed_memory()
    logs.configure(order.settings.log_format, order.settings.log_level)
    try:
        with exporting_traces(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(order))
    except CmserverError as error:
        click.echo(f"cmserver: {error}", err=True)
        sys.exit(exit_code(error))


async def _run(order: ChildOrder) -> None:
    settings, stop = order.settings, process.stop_on_signals()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_watch_parent, args=(loop, stop, settings.drain_seconds), daemon=True).start()
    pool_size = process.divide_pool(settings) if order.role == "api" else None
    async with process.open_connections(settings, order.urls, is_embedded=order.is_embedded, pool_size=pool_size) as connections:
        if order.role == "worker":
            os.nice(WORKER_NICENESS)
            working = asyncio.create_task(process.run_jobs(settings, connections, _load_providers(settings), stop))
            await process.run_until_stopped(connections, stop, working)
            await working
        else:
            await _serve(order, connections, stop)


def _load_providers(settings: Settings) -> ProviderChain:
    try:
        return registry.chain(settings)
    except Invalid as error:
        raise BadSetting(str(error)) from error


async def _serve(order: ChildOrder, connections: process.DatabaseConnections, stop: asyncio.Event) -> None:
    # What the worker does not need takes 15 MB.
    from cmserver.cli.api_server import open_api_server  # noqa: PLC0415
    from cmserver.generation.queue_monitor import QueueMonitor  # noqa: PLC0415

    assert order.listener is not None
    monitor = QueueMonitor(connections.db, warns=False)
    reload = reload_by(os.getppid()) if order.takes_reload else None
    start = ServerStart(config_file=order.config_file, reload=reload, not_reloaded=order.not_reloaded)
    server = await open_api_server(order.settings, connections, socket.socket(fileno=order.listener), monitor, start)
    tasks = [await server.start(), asyncio.create_task(monitor.run(stop, connections.notifications))]
    log.info("process.ready", pid=os.getpid())
    await process.run_until_stopped(connections, stop, *tasks)
    server.stop()
    await asyncio.gather(*tasks)
    await server.flush()


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, drain_seconds: float) -> None:
    """Tell the loop to stop when standard input ends; end the process when it does not. A thread, as the loop may hang."""
    while os.read(_LIFELINE, 1024):
        pass
    try:
        loop.call_soon_threadsafe(stop.set)
    except RuntimeError:  # it has ended already
        return
    time.sleep(drain_seconds + STOPPING_SECONDS)
    os._exit(1)
