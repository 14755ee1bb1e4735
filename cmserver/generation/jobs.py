"""The background tasks of generation: running a claimed batch, and keeping the ready list small."""

from __future__ import annotations

from procrastinate import App, PsycopgConnector

from cmserver.base.db import Db
from cmserver.base.logs import get_logger
from cmserver.generation import repository
from cmserver.generation.intake import repository as intake
from cmserver.generation.leases import repository as leases
from cmserver.generation.manager import QUEUE, TASK, OutboxManager
from cmserver.generation.run_batch import BatchRunner
from cmserver.models.calls import repository as calls

log = get_logger(__name__)


async def keep_ready_list(db: Db) -> None:
    """Repair the list of lanes that workers take work from, as a crash or a race may have left it.

    Removes lanes that were idle for a day, makes those due that have jobs and are not, or were held while their budget was raised,
    and marks provider calls as lost whose worker died.
    """
    removed = await db.in_system(repository.REMOVE_IDLE_LANES.run)
    stray = await db.in_system(leases.MAKE_STRAY_LANES_DUE.one)
    if stray:
        log.warning("lanes.woken", lanes=stray)
    await db.in_system(intake.make_affordable_lanes_due)
    if lost := await db.in_system(calls.LOSE_RUNS.run):
        log.warning("calls.lost", calls=lost)
    log.debug("lanes.removed", lanes=removed)


def generation_app(manager: OutboxManager, connector: PsycopgConnector, runner: BatchRunner) -> App:
    """A procrastinate app whose worker runs batches of our outbox."""
    app = App(connector=connector)
    app.job_manager = manager

    @app.task(name=TASK, queue=QUEUE)
    async def run_batch(job_id: int) -> None:  # pyright: ignore[reportUnusedFunction]
        await runner.run(*manager.look_up_claims(job_id))

    return app
