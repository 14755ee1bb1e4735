"""Runs the job process: the outbox worker, the worker of periodic tasks, the reaper and the embedding worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.worker import Worker

from cmserver.access import announce
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.waiting import run_periodically, run_unless_stopped, wait_any
from cmserver.consolidation.comparison.compare import compare_new
from cmserver.embeddings.calibration import jobs as calibration_jobs
from cmserver.embeddings.embedding_worker import EmbeddingWorker, keep_indexed
from cmserver.generation import jobs
from cmserver.generation.intake import repository as intake
from cmserver.generation.job_notifier import DONE, JOBS, JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.generation.manager import QUEUE, OutboxManager, WorkerLimits, check_contract
from cmserver.generation.run_batch import BatchRunner
from cmserver.generation.trace_old_turns import trace_old_turns
from cmserver.graph.overviews.make import make_due_overviews
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.graph.read_observations import read_new_observations
from cmserver.ingest import jobs as ingest_jobs
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import ProviderChain
from cmserver.observations.accesses import jobs as access_jobs
from cmserver.observations.answering.answer import expire_rules
from cmserver.ops.backup.scheduled import back_up_when_due
from cmserver.ops.joining.join import move_strays
from cmserver.ops.joining.normalise import normalise_all
from cmserver.replays.run_replay import run_replays
from cmserver.retention.sweep import sweep
from cmserver.steward.plan import plan_all
from cmserver.steward.run_job import StewardRunner

_MAX_RULES_EVENTS, _MAX_RULES_CHARS = 500, 8_000_000
"""A lane, or a turn that is gathered, is one batch; rules cost nothing."""
_SET_LANES = 32
"""At most this many lanes by rules are claimed at once; their effects are one transaction."""
_MAX_BATCH_EVENTS, _MAX_BATCH_CHARS = 20, 60_000
"""Of one call of a model: more events than a burst mostly has, and fewer observations in an answer than its limit cuts."""

_MAINTENANCE_TASKS = 2
"""A backup may take minutes, and the others go on meanwhile."""

_GONE_TASKS = (
    *("ingest.end_idle_sessions", "observations.count_accesses", "consolidation.compare"),
    *("projects.move_strays", "steward.plan"),
)
"""For one release: processes of the version before, beside this one, go on queueing these tasks. Without a name they would fail."""

log = get_logger(__name__)

REAP_SECONDS = 2.0
"""While any worker holds a lane, and for one lease after that."""
_ABORT_POLL_SECONDS = 1.0
"""While a job runs."""
_RARE_POLL_SECONDS = 60.0
"""For work that notifications tell of."""
_RAREST_POLL_SECONDS = 600.0
"""For work that heartbeats find, too."""
_PATIENT_HEARTBEAT_SECONDS = 20.0
"""Of workers whose jobs are not given to others."""
_PRUNED_AFTER_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0
_MAX_LOGGED_JOBS = 100
_GATHER_SECONDS = 1.0
_BUSY_PAUSE_SECONDS = 0.05
_MINUTE_SECONDS = 60.0
_READ_ANYWAY_SECONDS = 60.0
"""How often observations are read for entities: what was changed or imported wakes nobody."""


async def run_worker(
    settings: Settings,
    db: Db,
    notifications: NotificationListener,
    notifier: JobNotifier,
    providers: ProviderChain,
    stop: asyncio.Event,
    *,
    label: str | None = None,
) -> None:
    """Work until `stop` is set, then finish running jobs for up to `drain_seconds`."""
    check_contract()
    name = label or f"{socket.gethostname()}:{os.getpid()}"
    runner = BatchRunner(db, providers, notifier, settings, StewardRunner(db, settings))
    limits = WorkerLimits(
        slots=settings.generation_concurrency,
        set_lanes=_SET_LANES if runner.is_by_rules else None,
        max_events=_MAX_RULES_EVENTS if runner.is_by_rules else _MAX_BATCH_EVENTS,
        max_chars=_MAX_RULES_CHARS if runner.is_by_rules else _MAX_BATCH_CHARS,
        lease_seconds=settings.lease_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
    )

    def make_outbox_worker() -> Worker:
        connector = PsycopgConnector()
        manager = OutboxManager(connector, db, notifications, notifier, label=name, limits=limits)
        app = jobs.generation_app(manager, connector, runner)
        worker = _make_worker(
            settings,
            app,
            QUEUE,
            settings.generation_concurrency,
            heartbeat_seconds=settings.heartbeat_seconds,
            poll_seconds=_RAREST_POLL_SECONDS,
        )
        manager.stop_worker = worker.stop
        return worker

    def make_maintenance_worker() -> Worker:
        app = build_maintenance_app(PsycopgConnector(), db, settings)
        return _make_worker(
            settings,
            app,
            "maintenance",
            _MAINTENANCE_TASKS,
            heartbeat_seconds=_PATIENT_HEARTBEAT_SECONDS,
            poll_seconds=_RARE_POLL_SECONDS,
        )

    with contextlib.suppress(Unavailable):  # the settings may name other providers now: jobs that wait for one are tried again
        await db.in_system(intake.MAKE_PAUSED_LANES_DUE.run)
    log.info("worker.started", label=name, providers=[provider.name for provider in providers])
    async with asyncio.TaskGroup() as group:
        group.create_task(_supervise(QUEUE, make_outbox_worker, db, stop))
        group.create_task(_supervise("maintenance", make_maintenance_worker, db, stop))
        group.create_task(_reap(settings, db, notifier, stop))
        to_embed = asyncio.Event()
        group.create_task(_embed(settings, db, notifications, to_embed, stop))
        group.create_task(_trace_old_turns(db, stop))
        group.create_task(_run_replays(settings, db, notifications, stop))
        acts: dict[str, Callable[[], Coroutine[object, object, object]]] = {
            "end_idle_sessions": lambda: ingest_jobs.end_idle_sessions(db, notifier),
            "count_accesses": lambda: access_jobs.count_accesses(db),
            "compare_new": lambda: compare_new(db),
            "move_strays": lambda: move_strays(db),
            "plan_steward": lambda: plan_all(db, settings),
        }
        for place, act_name in enumerate(acts):
            first_seconds = place * _MINUTE_SECONDS / len(acts)
            group.create_task(_run_each_minute(act_name, acts[act_name], stop, first_seconds=first_seconds))
        if settings.entities != "off":
            group.create_task(_read_entities(db, notifications, to_embed, stop))
            group.create_task(_make_overviews(settings, db, notifications, stop))
    log.info("worker.stopped", label=name)


def build_maintenance_app(connector: PsycopgConnector, db: Db, settings: Settings) -> App:
    """The app of the periodic tasks. Without one procrastinate would not notice that its listener died."""
    app = App(connector=connector)
    tasks: dict[str, tuple[str, Callable[[], Awaitable[object]]]] = {
        "generation.keep_ready_list": ("*/10 * * * *", lambda: jobs.keep_ready_list(db)),
        "retention.sweep": ("*/5 * * * *", lambda: sweep(db)),
        "projects.normalise": ("17 * * * *", lambda: normalise_all(db)),
        "recall.calibrate_teams": ("*/10 * * * *", lambda: calibration_jobs.calibrate_teams(db, settings)),
        "rules.expire": ("*/10 * * * *", lambda: expire_rules(db)),
        "backups.make": ("*/10 * * * *", lambda: back_up_when_due(db, settings)),
    }
    for name, (cron, act) in tasks.items():
        _add_periodic(app, name, cron, act)
    for name in _GONE_TASKS:
        app.task(name=name)(_do_nothing)
    return app


async def _do_nothing(timestamp: int) -> None:
    pass


def _add_periodic(app: App, name: str, cron: str, act: Callable[[], Awaitable[object]]) -> None:
    """Not as a blueprint: adding one to an app renames its tasks, and each restart makes a new app."""

    @app.periodic(cron=cron)
    @app.task(name=name, queue="maintenance", queueing_lock=name)
    async def run(timestamp: int) -> None:  # noqa: ARG001 # pyright: ignore[reportUnusedFunction]
        await act()


def _make_worker(
    settings: Settings, app: App, queue: str, concurrency: int, *, heartbeat_seconds: float, poll_seconds: float
) -> Worker:
    """A worker of procrastinate for one queue."""
    return Worker(
        app,
        queues=[queue],
        name=queue,
        concurrency=concurrency,
        fetch_job_polling_interval=poll_seconds,
        abort_job_polling_interval=_ABORT_POLL_SECONDS,
        shutdown_graceful_timeout=settings.drain_seconds,
        install_signal_handlers=False,
        update_heartbeat_interval=heartbeat_seconds,
        stalled_worker_timeout=max(settings.lease_seconds, _PRUNED_AFTER_SECONDS),
        delete_jobs="successful",
    )


async def _supervise(name: str, make_worker: Callable[[], Worker], db: Db, stop: asyncio.Event) -> None:
    """Restart the worker after growing pauses: it ends without an error when one of its side tasks dies."""
    pause_seconds = 0.2
    while not stop.is_set():
        worker, started_at = make_worker(), time.monotonic()
        async with worker.app.open_async(db.session_pool):
            running = asyncio.create_task(worker.run())
            await wait_any(running, stop)
            worker.stop()
            try:
                await running
            except ConnectorException as error:  # the database is away or full, which the log says elsewhere
                log.warning("worker.failed", worker=name, error=str(error.__cause__ or error).strip())
            except Exception as error:
                log.warning("worker.failed", worker=name, exc_info=error)
        if stop.is_set():
            return
        is_steady = time.monotonic() - started_at > _STEADY_SECONDS
        pause_seconds = 0.2 if is_steady else min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
        log.warning("worker.restarting", worker=name, after_seconds=pause_seconds)
        await wait_any(stop, timeout_seconds=pause_seconds)


async def _reap(settings: Settings, db: Db, notifier: JobNotifier, stop: asyncio.Event) -> None:
    """Recover the lanes of dead workers. Not a job, which would need a free slot."""
    held_until = 0.0

    async def reap() -> None:
        nonlocal held_until
        before, held_until = held_until, time.monotonic() + settings.lease_seconds  # also should it fail
        reaped = await db.in_system(
            lambda conn: leases.reap(conn, hard_limit_seconds=settings.job_seconds),
            answer_seconds=settings.lease_seconds,
        )
        if not reaped.is_any_held:
            held_until = before
        if reaped.jobs:
            await db.in_system(calls.LOSE_RUNS.run)
            log.warning("lanes.recovered", count=len(reaped.jobs), jobs=[str(job) for job in reaped.jobs[:_MAX_LOGGED_JOBS]])
            notifier.notify_due()

    await run_periodically(
        reap,
        stop,
        # What a worker takes and leaves meanwhile is found before its lease is over.
        seconds=lambda: REAP_SECONDS if time.monotonic() < held_until else max(REAP_SECONDS, settings.lease_seconds / 2),
        log_failure=lambda error: log.error("reaper.failed", exc_info=error),
    )


async def _embed(
    settings: Settings, db: Db, notifications: NotificationListener, to_embed: asyncio.Event, stop: asyncio.Event
) -> None:
    """Embed new observations and the sentences of turns."""
    embedding_worker = EmbeddingWorker(db, settings)
    with _waking(to_embed, notifications, DONE, announce.NEWS, JOBS):  # JOBS: a turn has ended
        async with asyncio.TaskGroup() as group:
            group.create_task(embedding_worker.run(to_embed, stop))
            group.create_task(keep_indexed(db, embedding_worker.switched, stop))


async def _trace_old_turns(db: Db, stop: asyncio.Event) -> None:
    """Note what turns of before did; what was imported since is found soon enough."""
    await run_periodically(
        lambda: run_unless_stopped(stop, trace_old_turns(db)),
        stop,
        seconds=_READ_ANYWAY_SECONDS,
        busy_seconds=_BUSY_PAUSE_SECONDS,
        log_failure=lambda error: log.error("traces.failed", exc_info=error),
    )


async def _run_replays(settings: Settings, db: Db, notifications: NotificationListener, stop: asyncio.Event) -> None:
    """Run replays that people have begun. One that is under way is left when all stops, and goes on with the next worker."""

    async def run() -> bool:
        return await run_unless_stopped(stop, run_replays(db, settings)) is True

    begun = asyncio.Event()
    with _waking(begun, notifications, announce.NEWS):
        await run_periodically(
            run,
            stop,
            seconds=_READ_ANYWAY_SECONDS,
            wake=begun,
            busy_seconds=_BUSY_PAUSE_SECONDS,
            log_failure=lambda error: log.error("replays.failed", exc_info=error),
        )


async def _run_each_minute(
    name: str, act: Callable[[], Coroutine[object, object, object]], stop: asyncio.Event, *, first_seconds: float
) -> None:
    """Run what other workers may run at the same time: first after `first_seconds`, so that not all comes together.

    Not as tasks of procrastinate: what that asks the database for each is more than what most of them ask.
    """
    await wait_any(stop, timeout_seconds=first_seconds)
    await run_periodically(
        lambda: run_unless_stopped(stop, act()),
        stop,
        seconds=_MINUTE_SECONDS,
        log_failure=lambda error: log.error("task.failed", task=name, exc_info=error),
    )


async def _read_entities(db: Db, notifications: NotificationListener, to_embed: asyncio.Event, stop: asyncio.Event) -> None:
    """Read new observations for what they name, soon after the end of a batch or a manual observation."""

    async def read() -> bool:
        is_full = await read_new_observations(db)
        to_embed.set()  # new entities
        if not is_full:
            await wait_any(stop, timeout_seconds=_GATHER_SECONDS)  # what comes meanwhile is read at once
        return is_full

    await _follow_news(read, notifications, stop, lambda error: log.error("entities.failed", exc_info=error))


async def _make_overviews(settings: Settings, db: Db, notifications: NotificationListener, stop: asyncio.Event) -> None:
    """Make overviews that are due. A model may take a minute for each: nothing else waits for it, and it is left when all stops."""
    writer = OverviewWriter(db, settings)

    async def make() -> bool:
        return await run_unless_stopped(stop, make_due_overviews(db, writer)) is True

    await _follow_news(make, notifications, stop, lambda error: log.error("overview.failed", exc_info=error))


async def _follow_news(
    act: Callable[[], Awaitable[bool]],
    notifications: NotificationListener,
    stop: asyncio.Event,
    log_failure: Callable[[Exception], None],
) -> None:
    """Run `act` now and then, and after the end of a batch or a manual observation; again at once while it returns True."""
    wakeup = asyncio.Event()
    with _waking(wakeup, notifications, DONE, announce.NEWS):
        await run_periodically(
            act,
            stop,
            seconds=_READ_ANYWAY_SECONDS,
            wake=wakeup,
            busy_seconds=_BUSY_PAUSE_SECONDS,
            log_failure=log_failure,
        )


@contextlib.contextmanager
def _waking(wakeup: asyncio.Event, notifications: NotificationListener, *channels: str) -> Generator[None]:
    """Each notification of the channels sets the event."""
    unsubscribes = [notifications.subscribe(channel, lambda _payload: wakeup.set()) for channel in channels]
    try:
        yield
    finally:
        for unsubscribe in unsubscribes:
            unsubscribe()
