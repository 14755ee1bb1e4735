"""The background tasks of generation: running a claimed batch, and keeping the ready list small."""

from __future__ import annotations

from typing import cast

import structlog
from procrastinate import App, JobContext, PsycopgConnector
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.generation import repository
from cmserver.generation.calls import repository as calls
from cmserver.generation.leases import repository as leases
from cmserver.generation.manager import QUEUE, TASK, OutboxManager
from cmserver.generation.run import Generator

log: FilteringBoundLogger = structlog.get_logger(__name__)


async def keep_ready_list(context: JobContext, timestamp: int) -> None:  # noqa: ARG001 - procrastinate gives it
    """Lanes that nothing has waited in for a day go (they come back with the next event); lanes that sleep on waiting jobs wake.

    Calls of which nobody will hear any more are marked as lost. What waits for a budget goes on where it was raised just as its
    batch was put to rest.
    """
    db = cast("Db", context.additional_context["db"])  # pyright: ignore[reportUnknownMemberType]
    removed = await db.in_system(repository.remove_idle_lanes)
    woken = await db.in_system(leases.wake_sleeping_lanes)
    if woken:
        log.warning("lanes.woken", lanes=woken)
    await db.in_system(repository.unhold_for_budget)
    if lost := await db.in_system(calls.lose_runs):
        log.warning("calls.lost", calls=lost)
    log.debug("lanes.removed", lanes=removed)


def generation_app(manager: OutboxManager, connector: PsycopgConnector, generator: Generator) -> App:
    """Procrastinate over our outbox."""
    app = App(connector=connector)
    app.job_manager = manager

    @app.task(name=TASK, queue=QUEUE)
    async def run_batch(lane: str, claim: int, job_ids: list[str]) -> None:  # pyright: ignore[reportUnusedFunction]  # noqa: ARG001
        await generator.run(manager.claimed(claim))

    return app


def add_periodic(app: App) -> None:
    """Register the periodic tasks. Not as a blueprint: adding one to an app renames its tasks, and each restart makes a new app."""
    task = app.task(
        name="generation.keep_ready_list",
        queue="maintenance",
        queueing_lock="generation.keep_ready_list",
        pass_context=True,
    )(keep_ready_list)
    app.periodic(cron="*/10 * * * *")(task)
