"""The steward's task that runs a job, and giving back what dead workers held."""

from __future__ import annotations

from uuid import UUID

from procrastinate import App, PsycopgConnector

from cmserver.base.db import Db
from cmserver.base.logs import get_logger
from cmserver.steward import repository
from cmserver.steward.run_job import StewardRunner

log = get_logger(__name__)

QUEUE = "steward"


def steward_app(connector: PsycopgConnector, runner: StewardRunner) -> App:
    """The app whose worker runs the steward's jobs, one after the other. A trigger queues its tasks."""
    app = App(connector=connector)

    @app.task(name="steward.run", queue=QUEUE)
    async def run(job_id: str) -> None:  # pyright: ignore[reportUnusedFunction]
        await runner.run(UUID(job_id))

    return app


async def reap(db: Db) -> None:
    """Give back the jobs whose lease is over. Not a task, which would need a worker that lives."""
    if recovered := await db.in_system(repository.REQUEUE_LOST.all):
        log.warning("steward.jobs_recovered", jobs=[str(job_id) for job_id in recovered])
