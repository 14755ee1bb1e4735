"""The periodic sweep of retention."""

from __future__ import annotations

from procrastinate import App

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.retention.sweep import sweep


def add_periodic(app: App, db: Db, settings: Settings) -> None:
    """Register the periodic task. Not as a blueprint: adding one to an app renames its tasks, and each restart makes a new app."""

    @app.periodic(cron="*/5 * * * *")
    @app.task(name="retention.sweep", queue="maintenance", queueing_lock="retention.sweep")
    async def run(timestamp: int) -> None:  # noqa: ARG001 # pyright: ignore[reportUnusedFunction]
        await sweep(db, settings)
