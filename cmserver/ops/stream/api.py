"""The door to the live stream: server-sent events."""

from __future__ import annotations

from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import Operation, Text
from cmserver.base.http.wire import caller, query
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import NAMES, Name
from cmserver.ops.stream.reader import Reader

_MEDIA_TYPE = "text/event-stream"
# Whatever stands in between neither keeps the stream back nor packs it.
_HEADERS = {"X-Accel-Buffering": "no"}


class StreamQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`project` and `types` (names of events, with commas between them) narrow the stream. `lastEventId` is for clients that cannot
    send the header Last-Event-ID, which wins over it.
    """

    project: str | None = None
    types: str | None = None
    last_event_id: str | None = None


class _Stream(StreamingResponse):
    """Gives the reader back however the response ends, also when it never began.

    Starlette's own response and not sse-starlette's: that one brings four tasks a stream and a watcher that takes uvicorn's
    signal handlers in hand, while here the feed knows when to stop, and beats the heart itself.
    """

    def __init__(self, feed: Feed, reader: Reader, *, lost: bool) -> None:
        super().__init__(feed.read(reader, lost=lost), headers=_HEADERS, media_type=_MEDIA_TYPE)
        self._feed = feed
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._reader)


async def get_stream(request: Request) -> Response:
    """What happens in the team, as it happens: server-sent events that resume by Last-Event-ID.

    The events are `observation.created`, `observation.updated`, `observation.deleted`, `job.updated` and `session.updated`; `reset`
    tells a client that comes back too late to read anew what it shows.
    """
    who = await caller(request, Principal)
    asked = query(request, StreamQuery)
    names = _names(asked.types)
    project_id = await cast("Projects", request.app.state.projects).within(who, asked.project)
    if request.method == "HEAD":
        return Response(headers=_HEADERS, media_type=_MEDIA_TYPE)
    feed = cast("Feed", request.app.state.feed)
    last_event_id = request.headers.get("last-event-id") or asked.last_event_id
    reader, lost = await feed.join(who, project_id=project_id, names=names, last_event_id=last_event_id)
    return _Stream(feed, reader, lost=lost)


def _names(types: str | None) -> frozenset[Name]:
    if types is None:
        return frozenset(NAMES)
    asked = {word.strip() for word in types.split(",")}
    if unknown := sorted(asked - set(NAMES)):
        raise Invalid.at("$.types", f"There is no event {unknown[0]!r}. The events are: {', '.join(NAMES)}.")
    return frozenset(name for name in NAMES if name in asked)


routes = [
    Operation(
        "GET",
        "/v1/stream",
        get_stream,
        scope="observations:read",
        query=StreamQuery,
        answers={200: Text(_MEDIA_TYPE, "Server-sent events until one side closes; the data of each is one JSON object.")},
    ),
]
