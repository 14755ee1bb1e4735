"""A paused provider is asked again before its time: the operator has paid, or has set another key."""

from __future__ import annotations

from collections.abc import Collection

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import Forbidden, NotFound
from cmserver.base.sql import Conn
from cmserver.generation.calls import pauses


async def resume(conn: Conn, principal: Principal, provider: str, chain: Collection[str]) -> bool:
    """Let everybody ask it again; False when it was not paused. NotFound for one that is neither of the `chain` nor paused."""
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project; a provider's pause is one for the whole server.")
    if await pauses.active(conn, provider) is not None:
        await pauses.resume(conn, provider)
        await audit.record(conn, principal, "provider.resumed", "provider", provider)
        return True
    if provider not in chain:
        raise NotFound(f"There is no provider of that name here. CMSERVER_PROVIDER names: {', '.join(chain)}.")
    return False
