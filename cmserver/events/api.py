"""The door to single events. They come in through ingest; what became of them is shown by observations."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cmserver.access.model import Principal
from cmserver.base.http.wire import answer, caller, db
from cmserver.events import read
from cmserver.events.wire import event_out


async def get_event(request: Request) -> Response:
    """One event, as it was stored: redacted, and cut where it was very long."""
    who = await caller(request, Principal, "observations:read")
    async with db(request).tenant(who.team_id) as conn:
        event = await read.one(conn, who, str(request.path_params["id"]))
    return answer({"event": event_out(event)})


routes = [Route("/v1/events/{id}", get_event, methods=["GET"])]
