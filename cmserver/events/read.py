"""Finding the event that a caller names."""

from __future__ import annotations

from cmserver.access.model import Principal
from cmserver.base.errors import NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.events import repository
from cmserver.events.model import Event


async def one(conn: Conn, principal: Principal, named: str) -> Event:
    """The event of that id; NotFound also when it belongs to a project that the key may not see."""
    event_id = named_id(named)
    event = await repository.by_id(conn, principal.team_id, event_id) if event_id else None
    if event is None or not principal.sees(event.project_id):
        raise NotFound("There is no such event.")
    return event
