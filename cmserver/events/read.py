"""Finds events."""

from __future__ import annotations

from cmserver.access.model import Principal
from cmserver.base.errors import NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.events import repository
from cmserver.events.model import StoredEvent


async def find_event(conn: Conn, principal: Principal, name: str) -> StoredEvent:
    """The event with that id. NotFound also when the key may not see its project."""
    event_id = named_id(name)
    event = await repository.by_id(conn, principal.team_id, event_id) if event_id else None
    if event is None or not principal.sees(event.project_id):
        raise NotFound("Event not found.")
    return event
