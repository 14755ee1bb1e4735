"""The live stream over HTTP: server-sent events."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import TextAnswer, get
from cmserver.base.http.wire import caller, dependency, query
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import NAMES, Name
from cmserver.ops.stream.reader import Reader

_MEDIA_TYPE = "text/event-stream"
# Proxies must not buffer the stream.
_HEADERS = {"X-Accel-Buffering": "no"}


class StreamQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`project` and `types` (names of events, with commas between them) narrow the stream. `lastEventId` is the id of the last
    event that came, for clients that cannot send the header Last-Event-ID, which wins over it.
    """

    project: str | None = None
    types: str | None = None
    last_event_id: str | None = None


class _Stream(StreamingResponse):
    """Leaves the feed however the response ends, also when it never began.

    Not sse-starlette's response, which starts four tasks per stream and replaces uvicorn's signal handlers.
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
    """Server-sent events of the team, live; Last-Event-ID resumes them.

    The events are `observation.created`, `observation.updated`, `observation.deleted`, `job.updated` and `session.updated`; `reset`
    tells a client whose last id is too old to reload.
    """
    principal = await caller(request, Principal)
    filters = query(request, StreamQuery)
    names = _parse_names(filters.types)
    project_id = await dependency(request, Projects).within(principal, filters.project)
    if request.method == "HEAD":
        return Response(headers=_HEADERS, media_type=_MEDIA_TYPE)
    feed = dependency(request, Feed)
    last_event_id = request.headers.get("last-event-id") or filters.last_event_id
    reader, lost = await feed.join(principal, project_id=project_id, names=names, last_event_id=last_event_id)
    return _Stream(feed, reader, lost=lost)


def _parse_names(types: str | None) -> frozenset[Name]:
    if types is None:
        return frozenset(NAMES)
    names = {word.strip() for word in types.split(",")}
    if unknown := sorted(names - set(NAMES)):
        raise Invalid.at("$.types", f"There is no event {unknown[0]!r}. The events are: {', '.join(NAMES)}.")
    return frozenset(name for name in NAMES if name in names)


routes = [
    get(
        "/v1/stream",
        get_stream,
        "observations:read",
        TextAnswer(_MEDIA_TYPE, "Server-sent events until one side closes; the data of each is one JSON object."),
        query=StreamQuery,
    ),
]
