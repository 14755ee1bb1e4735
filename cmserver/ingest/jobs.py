"""The background task of ingest: the idle sweep."""

from __future__ import annotations

from typing import cast

import structlog
from procrastinate import App, JobContext
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.generation.bell import Bell
from cmserver.ingest.sweep import sweep

log: FilteringBoundLogger = structlog.get_logger(__name__)


async def end_idle_sessions(context: JobContext, timestamp: int) -> None:  # noqa: ARG001 - procrastinate gives it
    """Sessions without a sign of life for CMSERVER_SESSION_IDLE_HOURS end, and get their summary."""
    given = cast("dict[str, object]", context.additional_context)  # pyright: ignore[reportUnknownMemberType]
    db, bell, settings = cast("Db", given["db"]), cast("Bell", given["bell"]), cast("Settings", given["settings"])
    if settings.session_idle_hours <= 0:
        return
    jobs = await sweep(db, bell, idle_seconds=settings.session_idle_hours * 3600, max_attempts=settings.job_max_attempts)
    if jobs:
        log.info("sessions.ended", sessions=[str(job.source_id) for job in jobs])


def add_periodic(app: App) -> None:
    """Register the periodic task. Not as a blueprint: adding one to an app renames its tasks, and each restart makes a new app."""
    task = app.task(
        name="ingest.end_idle_sessions",
        queue="maintenance",
        queueing_lock="ingest.end_idle_sessions",
        pass_context=True,
    )(end_idle_sessions)
    app.periodic(cron="* * * * *")(task)
