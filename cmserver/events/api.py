"""Events over HTTP: a list, and one. Events are stored by ingest; their observations are shown by observations."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall
from cmserver.base import paging
from cmserver.base.structs import reshape
from cmserver.events import repository
from cmserver.events.read import find_event
from cmserver.events.wire import EventOut, EventRowOut, EventsOut, EventsQuery, OneEventOut
from cmserver.sessions.read import find_session


@verb.get("/v1/events", "observations:read")
async def get_events(call: VerbCall, given: EventsQuery) -> EventsOut:
    """A page of events, newest first; with their payloads only on request."""
    principal = call.principal
    project_id = await call.dependency(Projects).within(principal, given.project)
    before, before_id = paging.place(given.cursor)
    async with call.read() as conn:
        session = await find_session(conn, principal, given.session) if given.session is not None else None
        rows = await repository.page(
            conn,
            principal.team_id,
            project_id=project_id,
            session_id=session.id if session else None,
            event_type=given.type,
            with_payload=given.include is not None,
            before=before,
            before_id=before_id,
            limit=given.limit + 1,
        )
    events, next_cursor = paging.page(rows, given.limit, lambda event: (event.occurred_at, event.id))
    row_type = EventOut if given.include else EventRowOut
    return EventsOut(events=[reshape(event, row_type) for event in events], next_cursor=next_cursor)


@verb.get("/v1/events/{id}", "observations:read")
async def get_event(call: VerbCall, given: str) -> OneEventOut:
    """One event, as it was stored: redacted, and cut where it was very long."""
    async with call.read() as conn:
        return OneEventOut(event=reshape(await find_event(conn, call.principal, given), EventOut))


routes = [get_events, get_event]
