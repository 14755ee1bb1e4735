"""The periodic task that makes backups."""

from __future__ import annotations

from procrastinate import App

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.ops.backup.scheduled import back_up_when_due


def add_periodic(app: App, db: Db, settings: Settings) -> None:
    """Register the periodic task."""

    @app.periodic(cron="*/10 * * * *")
    @app.task(name="backups.make", queue="maintenance", queueing_lock="backups.make")
    async def run(timestamp: int) -> None:  # noqa: ARG001 # pyright: ignore[reportUnusedFunction]
        await back_up_when_due(db, settings)
