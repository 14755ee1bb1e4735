"""Events over HTTP: a list, and one. Events are stored by ingest; their observations are shown by observations."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.http.operation import get
from cmserver.base.http.wire import answer, caller, db, dependency, query
from cmserver.base.structs import reshape
from cmserver.events import repository
from cmserver.events.read import find_event
from cmserver.events.wire import EventOut, EventRowOut, EventsOut, EventsQuery, OneEventOut
from cmserver.sessions.read import find_session


async def get_events(request: Request) -> Response:
    """A page of events, newest first; with their payloads only on request."""
    principal = await caller(request, Principal)
    filters = query(request, EventsQuery)
    project_id = await dependency(request, Projects).within(principal, filters.project)
    before, before_id = paging.place(filters.cursor)
    async with db(request).tenant(principal.team_id) as conn:
        session = await find_session(conn, principal, filters.session) if filters.session is not None else None
        rows = await repository.page(
            conn,
            principal.team_id,
            project_id=project_id,
            session_id=session.id if session else None,
            event_type=filters.type,
            with_payload=filters.include is not None,
            before=before,
            before_id=before_id,
            limit=filters.limit + 1,
        )
    events, next_cursor = paging.page(rows, filters.limit, lambda event: (event.occurred_at, event.id))
    row_type = EventOut if filters.include else EventRowOut
    return answer(EventsOut(events=[reshape(event, row_type) for event in events], next_cursor=next_cursor))


async def get_event(request: Request) -> Response:
    """One event, as it was stored: redacted, and cut where it was very long."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        event = await find_event(conn, principal, str(request.path_params["id"]))
    return answer(OneEventOut(event=reshape(event, EventOut)))


routes = [
    get("/v1/events", get_events, "observations:read", EventsOut, query=EventsQuery),
    get("/v1/events/{id}", get_event, "observations:read", OneEventOut),
]
