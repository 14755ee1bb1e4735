"""The periodic task that normalises the names of projects."""

from __future__ import annotations

from procrastinate import App

from cmserver.base.db import Db
from cmserver.ops.joining.normalise import normalise_all


def add_periodic(app: App, db: Db) -> None:
    """Register the periodic task."""

    @app.periodic(cron="17 * * * *")
    @app.task(name="projects.normalise", queue="maintenance", queueing_lock="projects.normalise")
    async def run(timestamp: int) -> None:  # noqa: ARG001 # pyright: ignore[reportUnusedFunction]
        await normalise_all(db)
