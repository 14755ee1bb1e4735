"""The job process: a worker over the outbox, a stock worker for periodic tasks, and the reaper; each supervised."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence

import structlog
from procrastinate import App, PsycopgConnector
from procrastinate.worker import Worker
from structlog.typing import FilteringBoundLogger

from cmserver.access import announce
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.live import Hub
from cmserver.base.settings import Settings
from cmserver.generation import jobs, repository
from cmserver.generation.bell import DONE, Bell
from cmserver.generation.calls import repository as calls
from cmserver.generation.leases import repository as leases
from cmserver.generation.manager import QUEUE, Limits, OutboxManager, check_contract
from cmserver.generation.operate import repository as operate
from cmserver.generation.run import Generator
from cmserver.ingest import jobs as ingest_jobs
from cmserver.observations.accesses import jobs as access_jobs
from cmserver.observations.embedding.keep import Keeper, keep_indexed
from cmserver.providers.model import Provider

log: FilteringBoundLogger = structlog.get_logger(__name__)

REAP_SECONDS = 2.0
WATCH_SECONDS = 60.0
POLL_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0
_NAMED_MOST = 100


async def run_worker(
    settings: Settings,
    db: Db,
    hub: Hub,
    bell: Bell,
    providers: Sequence[Provider],
    stop: asyncio.Event,
    *,
    label: str | None = None,
) -> None:
    """Work until `stop` is set, then finish what is in hand, for `drain_seconds` at the most."""
    check_contract()
    name = label or f"{socket.gethostname()}:{os.getpid()}"
    generator = Generator(
        db,
        providers,
        bell,
        call_timeout_seconds=settings.provider_timeout_seconds,
        hard_limit_seconds=settings.job_hard_limit_seconds,
        lease_seconds=settings.lease_seconds,
        language=settings.language,
        event_tokens=settings.prompt_event_tokens,
    )
    limits = Limits(
        slots=settings.generation_concurrency,
        max_events=settings.batch_max_events,
        max_chars=settings.batch_max_chars,
        lease_seconds=settings.lease_seconds,
    )

    def outbox_worker() -> Worker:
        connector = PsycopgConnector()
        manager = OutboxManager(connector, db, hub, bell, label=name, limits=limits)
        app = jobs.generation_app(manager, connector, generator)
        worker = _worker(settings, app, QUEUE, settings.generation_concurrency)
        manager.stop_worker = worker.stop
        return worker

    def maintenance_worker() -> Worker:
        worker = _worker(settings, maintenance_app(PsycopgConnector()), "maintenance", 1)
        worker.additional_context = {"db": db, "bell": bell, "settings": settings}
        return worker

    with contextlib.suppress(Unavailable):  # what waits for a provider may be another one's by now: the settings can have changed
        await db.in_system(repository.unhold_lanes)
    log.info("worker.started", label=name, providers=[one.name for one in providers])
    async with asyncio.TaskGroup() as group:
        group.create_task(_supervised(QUEUE, outbox_worker, db, stop))
        group.create_task(_supervised("maintenance", maintenance_worker, db, stop))
        group.create_task(_reap(settings, db, bell, stop))
        group.create_task(watch(settings, db, stop))
        group.create_task(_embed(settings, db, hub, stop))
    log.info("worker.stopped", label=name)


def maintenance_app(connector: PsycopgConnector) -> App:
    """The stock procrastinate, for everything periodic. Without any periodic task it would not notice that its listener died."""
    app = App(connector=connector)
    jobs.add_periodic(app)
    ingest_jobs.add_periodic(app)
    access_jobs.add_periodic(app)
    return app


def _worker(settings: Settings, app: App, queue: str, concurrency: int) -> Worker:
    return Worker(
        app,
        queues=[queue],
        name=queue,
        concurrency=concurrency,
        fetch_job_polling_interval=POLL_SECONDS,
        abort_job_polling_interval=POLL_SECONDS,
        shutdown_graceful_timeout=settings.drain_seconds,
        install_signal_handlers=False,
        update_heartbeat_interval=settings.heartbeat_seconds,
        stalled_worker_timeout=max(settings.lease_seconds, 60.0),
        delete_jobs="successful",
    )


async def _supervised(name: str, make: Callable[[], Worker], db: Db, stop: asyncio.Event) -> None:
    """A worker ends without an error when one of its side tasks dies; start a fresh one, soon at first, then with patience."""
    pause = 0.2
    while not stop.is_set():
        worker, began = make(), time.monotonic()
        async with worker.app.open_async(db.owner_pool):
            running = asyncio.create_task(worker.run())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            worker.stop()
            try:
                await running
            except Exception as error:
                log.warning("worker.failed", worker=name, exc_info=error)
        if stop.is_set():
            return
        pause = 0.2 if time.monotonic() - began > _STEADY_SECONDS else min(pause * 2, _LONGEST_PAUSE_SECONDS)
        log.warning("worker.restarting", worker=name, after_seconds=pause)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)


async def _reap(settings: Settings, db: Db, bell: Bell, stop: asyncio.Event) -> None:
    """Give back what dead workers hold. No job of its own: it must not need a free slot."""
    while not stop.is_set():
        try:
            recovered = await db.in_system(lambda conn: leases.reap(conn, hard_limit_seconds=settings.job_hard_limit_seconds))
            if recovered:
                await db.in_system(calls.lose_runs)
                log.warning("lanes.recovered", count=len(recovered), jobs=[str(job) for job in recovered[:_NAMED_MOST]])
                bell.ring()
        except Unavailable:
            pass  # the database is away; so are everybody's heartbeats
        except Exception:
            log.exception("reaper.failed")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), REAP_SECONDS)


async def _embed(settings: Settings, db: Db, hub: Hub, stop: asyncio.Event) -> None:
    """Embed what waits, beside everything else; the end of a batch, or something written by hand, wakes it."""
    keeper, woken = Keeper(db, settings), asyncio.Event()
    ends = [hub.on(channel, lambda _payload: woken.set()) for channel in (DONE, announce.NEWS)]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(keeper.run(woken, stop))
            group.create_task(keep_indexed(db, keeper.switched, stop))
    finally:
        for end in ends:
            end()


async def watch(settings: Settings, db: Db, stop: asyncio.Event) -> None:
    """Say once a minute when jobs wait for longer than they should. Processes without a worker do it, too: perhaps none runs."""
    while settings.queue_warning_seconds > 0 and not stop.is_set():
        try:
            await say_when_behind(db, settings.queue_warning_seconds)
        except Unavailable:
            pass  # the database is away; so is the queue
        except Exception:
            log.exception("queue.not_watched")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), WATCH_SECONDS)


async def say_when_behind(db: Db, warning_seconds: float) -> None:
    """A warning with the teams whose oldest waiting job is older than that."""
    async with db.system() as conn:
        late = await operate.behind(conn, warning_seconds)
    if late:
        oldest = round(late[0].oldest_waiting_seconds)
        log.warning("queue.behind", oldest_waiting_seconds=oldest, teams=[one.team for one in late[:_NAMED_MOST]])
