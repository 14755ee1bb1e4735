"""The periodic tasks that normalise the names of projects, and move what is written while they are joined."""

from __future__ import annotations

from procrastinate import App

from cmserver.base.db import Db
from cmserver.ops.joining.join import move_strays
from cmserver.ops.joining.normalise import normalise_all


def add_periodic(app: App, db: Db) -> None:
    """Register the periodic tasks."""

    @app.periodic(cron="17 * * * *")
    @app.task(name="projects.normalise", queue="maintenance", queueing_lock="projects.normalise")
    async def normalise(timestamp: int) -> None:  # noqa: ARG001 # pyright: ignore[reportUnusedFunction]
        await normalise_all(db)

    @app.periodic(cron="* * * * *")
    @app.task(name="projects.move_strays", queue="maintenance", queueing_lock="projects.move_strays")
    async def move(timestamp: int) -> None:  # noqa: ARG001 # pyright: ignore[reportUnusedFunction]
        await move_strays(db)
