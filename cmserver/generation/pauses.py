"""Quota and a bad key stop a provider for everybody: one row in the database, not each job in turn."""

from __future__ import annotations

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.generation import repository
from cmserver.generation.model import Pause
from cmserver.providers.model import ProviderError

log: FilteringBoundLogger = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 60.0


async def active(conn: Conn, provider: str) -> Pause | None:
    """The provider's pause, while it lasts."""
    return next((one for one in await repository.pauses(conn) if one.provider == provider and one.seconds_left > 0), None)


async def pause(db: Db, provider: str, error: ProviderError) -> Pause:
    """Stop calls of the provider for everybody. Said once, by whoever is first."""

    async def stop(conn: Conn) -> tuple[Pause, bool]:
        known = await active(conn, provider)
        seconds = error.retry_after_seconds or FIRST_PAUSE_SECONDS
        return known or await repository.pause_provider(conn, provider, error.kind.value, str(error), seconds), known is None

    paused, first = await db.in_system(stop)
    if first:
        log.warning("provider.paused", provider=provider, reason=paused.reason, seconds=round(paused.seconds_left))
    return paused


async def resume(db: Db, provider: str) -> bool:
    """Let the provider be asked again, and the lanes that waited go on at once. False when it was not paused."""

    async def go_on(conn: Conn) -> bool:
        was = await repository.end_pause(conn, provider)
        if was:
            await repository.unhold_lanes(conn)
        return was

    was = await db.in_system(go_on)
    if was:
        log.info("provider.resumed", provider=provider)
    return was
