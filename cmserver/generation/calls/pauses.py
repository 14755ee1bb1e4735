"""Quota and a bad key stop a provider for everybody: one row in the database, not each job in turn."""

from __future__ import annotations

from cmserver.base.sql import Conn
from cmserver.generation import repository as outbox
from cmserver.generation.calls import repository
from cmserver.generation.model import Pause
from cmserver.providers.model import ProviderError

FIRST_PAUSE_SECONDS = 60.0


async def active(conn: Conn, provider: str) -> Pause | None:
    """The provider's pause, while it lasts."""
    return next((one for one in await repository.pauses(conn) if one.provider == provider and one.seconds_left > 0), None)


async def pause(conn: Conn, provider: str, error: ProviderError) -> tuple[Pause, bool]:
    """Stop calls of the provider for everybody; the pause, and whether it is new."""
    known = await active(conn, provider)
    if known is not None:
        return known, False
    seconds = error.retry_after_seconds or FIRST_PAUSE_SECONDS
    return await repository.pause_provider(conn, provider, error.kind.value, str(error), seconds), True


async def resume(conn: Conn, provider: str) -> bool:
    """Let the provider be asked again, and the lanes that waited go on at once. False when it was not paused."""
    was = await repository.end_pause(conn, provider)
    if was:
        await outbox.unhold_lanes(conn)
    return was
