"""The steward's tasks: planning every minute, running a job, and giving back what dead workers held."""

from __future__ import annotations

from uuid import UUID

import structlog
from procrastinate import App, PsycopgConnector
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.steward import repository
from cmserver.steward.plan import plan_all
from cmserver.steward.run_job import StewardRunner

log: FilteringBoundLogger = structlog.get_logger(__name__)

QUEUE = "steward"


def steward_app(connector: PsycopgConnector, runner: StewardRunner) -> App:
    """The app whose worker runs the steward's jobs, one after the other. A trigger queues its tasks."""
    app = App(connector=connector)

    @app.task(name="steward.run", queue=QUEUE)
    async def run(job_id: str) -> None:  # pyright: ignore[reportUnusedFunction]
        await runner.run(UUID(job_id))

    return app


def add_periodic(app: App, db: Db, settings: Settings) -> None:
    """Register the periodic task. Not as a blueprint: adding one to an app renames its tasks, and each restart makes a new app."""

    @app.periodic(cron="* * * * *")
    @app.task(name="steward.plan", queue="maintenance", queueing_lock="steward.plan")
    async def run(timestamp: int) -> None:  # noqa: ARG001 # pyright: ignore[reportUnusedFunction]
        await plan_all(db, settings)


async def reap(db: Db) -> None:
    """Give back the jobs whose lease is over. Not a task, which would need a worker that lives."""
    if recovered := await db.in_system(repository.requeue_lost):
        log.warning("steward.jobs_recovered", jobs=[str(job_id) for job_id in recovered])
