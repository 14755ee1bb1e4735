"""What each process of a server has: its connections, its signals; and what the worker's does."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from cmserver.access import announce
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.metrics import observe_loop_lag
from cmserver.base.notifications import PROBE, NotificationListener
from cmserver.base.server_start import RELOAD_SIGNAL
from cmserver.base.settings import Settings
from cmserver.base.waiting import run_beside, wait_any
from cmserver.generation.job_notifier import CHANNELS, JobNotifier
from cmserver.models.providers.model import ProviderChain


class DatabaseConnections(msgspec.Struct, frozen=True):
    """The connections to the database that a process shares."""

    db: Db
    notifications: NotificationListener
    notifier: JobNotifier
    listening: asyncio.Task[None]
    """Ends only with the connections, or by an unexpected error."""


@asynccontextmanager
async def open_connections(
    settings: Settings, urls: DatabaseUrls, *, is_embedded: bool, pool_size: int | None = None
) -> AsyncGenerator[DatabaseConnections]:
    """The connections of this process, until the end of the block. `pool_size` instead of the setting's."""
    async with Db(
        urls,
        size=pool_size or settings.database_pool_size,
        statement_timeout_seconds=settings.statement_timeout_seconds,
        idle_in_transaction_seconds=min(10.0, settings.lease_seconds),
        answer_seconds=settings.job_seconds,
        disk=settings.data_dir if is_embedded else None,
        journal=ErasureJournal(settings.backup_folder),
    ) as db:
        notifications = NotificationListener(urls.session)
        channels = [*CHANNELS, announce.CHANNEL, announce.NEWS, announce.SESSIONS, PROBE]
        async with run_beside(notifications.listen(channels), observe_loop_lag()) as (listening, _):
            yield DatabaseConnections(db, notifications, JobNotifier(db, notifications), listening)


def divide_pool(settings: Settings) -> int:
    """The size of the pools of each process of the API: together they hold about as many connections as one would."""
    return max(min(2, settings.database_pool_size), -(-settings.database_pool_size // settings.api_processes))


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    return stop


class ServerSignals:
    """What signals ask of the first process: to end (SIGINT, SIGTERM), or to begin anew with other settings (RELOAD_SIGNAL)."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        """Ends what runs now."""
        self._is_ending = self._is_reloading = False
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, self._end)
        loop.add_signal_handler(RELOAD_SIGNAL, self._reload)

    def _end(self) -> None:
        self._is_ending = True
        self.stop.set()

    def _reload(self) -> None:
        self._is_reloading = True
        self.stop.set()

    @property
    def is_reloading(self) -> bool:
        """Whether what ends is to begin anew."""
        return self._is_reloading and not self._is_ending

    def begin_anew(self) -> bool:
        """Whether what has ended is to begin anew; `stop` is another event then."""
        if not self.is_reloading:
            return False
        self._is_reloading, self.stop = False, asyncio.Event()
        return True


async def run_until_stopped(connections: DatabaseConnections, stop: asyncio.Event, *tasks: asyncio.Task[None]) -> None:
    """Return on `stop`, or when a task ends; then nothing waits for the database or for notifications for long."""
    await wait_any(stop, connections.listening, *tasks)
    stop.set()
    connections.db.hurry()
    connections.notifications.close()  # wakes requests that wait for observations


async def run_jobs(settings: Settings, connections: DatabaseConnections, providers: ProviderChain, stop: asyncio.Event) -> None:
    """Be the worker until `stop`."""
    from cmserver.worker import run_worker  # noqa: PLC0415 - twenty megabytes, which no process of the API should take

    freeze_garbage()
    await run_worker(settings, connections.db, connections.notifications, connections.notifier, providers, stop)


def freeze_garbage() -> None:
    """Exclude the objects of the start from garbage collection, and collect less often: it took 20 % of a batch's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
