"""Quota, a bad key, or that nobody reaches it stop a provider for everybody: one row in the database, not each job in turn."""

from __future__ import annotations

from cmserver.base.sql import Conn
from cmserver.generation import repository as outbox
from cmserver.generation.calls import repository
from cmserver.generation.model import Pause
from cmserver.providers.model import ProviderError

FIRST_PAUSE_SECONDS = 60.0
FIRST_PAUSE_OUT_OF_REACH_SECONDS = 15.0
"""A network comes back sooner than money."""


async def active(conn: Conn, provider: str) -> Pause | None:
    """The provider's pause, while it lasts."""
    return next((one for one in await repository.pauses(conn) if one.provider == provider and one.seconds_left > 0), None)


async def pause(conn: Conn, provider: str, error: ProviderError) -> tuple[Pause, bool]:
    """Stop calls of the provider for everybody; the pause, and whether it is new."""
    first = FIRST_PAUSE_OUT_OF_REACH_SECONDS if error.out_of_reach else FIRST_PAUSE_SECONDS
    seconds = error.retry_after_seconds or first
    new = await repository.pause_provider(conn, provider, error.kind.value, str(error), seconds)
    if new is not None:
        return new, True
    known = await active(conn, provider)
    assert known is not None, "the pause that was in the way is locked until we are done"
    return known, False


async def resume(conn: Conn, provider: str) -> bool:
    """Let the provider be asked again, and the lanes that waited go on at once. False when it was not paused."""
    was = await repository.end_pause(conn, provider)
    if was:
        await outbox.unhold_lanes(conn)
    return was
