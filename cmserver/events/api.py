"""The door to single events. They come in through ingest; what became of them is shown by observations."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db
from cmserver.events import read
from cmserver.events.wire import EventOut, event_out


class OneOut(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    event: EventOut


async def get_event(request: Request) -> Response:
    """One event, as it was stored: redacted, and cut where it was very long."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        event = await read.one(conn, who, str(request.path_params["id"]))
    return answer(OneOut(event=event_out(event)))


routes = [Operation("GET", "/v1/events/{id}", get_event, scope="observations:read", answers={200: OneOut})]
