"""The background task that counts accesses."""

from __future__ import annotations

from typing import cast

from procrastinate import App, JobContext

from cmserver.base.db import Db
from cmserver.observations.accesses.count import count_accesses as count


async def count_accesses(context: JobContext, timestamp: int) -> None:  # noqa: ARG001 - procrastinate gives it
    """How often observations were read, and when last, is added up from the audit log."""
    await count(cast("Db", context.additional_context["db"]))  # pyright: ignore[reportUnknownMemberType]


def add_periodic(app: App) -> None:
    """Register the periodic task. Not as a blueprint: adding one to an app renames its tasks, and each restart makes a new app."""
    task = app.task(
        name="observations.count_accesses",
        queue="maintenance",
        queueing_lock="observations.count_accesses",
        pass_context=True,
    )(count_accesses)
    app.periodic(cron="* * * * *")(task)
