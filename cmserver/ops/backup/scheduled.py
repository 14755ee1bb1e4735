"""Makes a backup when the newest one is too old."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from cmserver.base.db import Db
from cmserver.base.erasure_journal import make_backup_folder
from cmserver.base.errors import CmserverError
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.ops.backup import repository
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.catalog import new_name, newest, remove_old
from cmserver.ops.backup.replay import created_at

log = get_logger(__name__)

KEPT = 7
"""A week of daily ones. Backups by hand are not counted, and stay."""


async def back_up_when_due(db: Db, settings: Settings) -> bool:
    """Make a backup, and remove old ones, if the newest is older than `backup_every_hours`; returns whether one was made."""
    if not settings.backup_every_hours:
        return False
    async with db.system_statement() as conn:
        installation = await repository.installation(conn)
    if installation is None:
        return False
    folder = settings.backup_folder
    began = time.monotonic()
    try:
        last = await asyncio.to_thread(newest, folder, installation)
        age = timedelta(hours=settings.backup_every_hours)
        if last is not None and last.manifest is not None and datetime.now(UTC) - created_at(last.manifest) < age:
            return False
        make_backup_folder(folder)
        file = new_name(folder)
        await back_up(db.session_url, settings, file)
        size = file.stat().st_size
        removed = await asyncio.to_thread(remove_old, folder, KEPT, installation)
    except (CmserverError, OSError) as error:
        log.error("backup.failed", folder=str(folder), error=str(error))  # noqa: TRY400 - a sentence, no bug
        return False
    log.info("backup.made", file=str(file), size_bytes=size, seconds=round(time.monotonic() - began, 1))
    if removed:
        log.info("backups.removed", files=[file.name for file in removed])
    return True
