"""Begins the journal of erasures when a process starts."""

from __future__ import annotations

import asyncio

from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal, JournalError
from cmserver.base.logs import get_logger
from cmserver.ops.backup import repository

log = get_logger(__name__)


async def begin_journal(db: Db, journal: ErasureJournal) -> None:
    """Make the journal of this installation if there is none. Where it cannot be written, erasures are refused until it can."""
    async with db.system_statement() as conn:
        installation, now = await repository.installation(conn), await repository.CLOCK.one(conn)
    if installation is None:
        return
    try:
        await asyncio.to_thread(journal.begin, installation, now)
    except JournalError as error:
        log.warning("journal.unavailable", error=str(error))
