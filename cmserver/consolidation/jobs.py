"""The periodic task that compares new observations with the others of their project."""

from __future__ import annotations

from procrastinate import App

from cmserver.base.db import Db
from cmserver.consolidation.comparison.compare import compare_new


def add_periodic(app: App, db: Db) -> None:
    """Register the periodic task."""

    @app.periodic(cron="* * * * *")
    @app.task(name="consolidation.compare", queue="maintenance", queueing_lock="consolidation.compare")
    async def run(timestamp: int) -> None:  # noqa: ARG001 # pyright: ignore[reportUnusedFunction]
        await compare_new(db)
