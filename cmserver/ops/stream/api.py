"""The live stream over HTTP: server-sent events."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid
from cmserver.base.http.event_stream import HEADERS, MEDIA_TYPE, EventStream
from cmserver.base.http.operation import TextAnswer, get
from cmserver.base.http.wire import caller, dependency, query
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import NAMES, Name


class StreamQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`project` and `types` (names of events, with commas between them) narrow the stream. `lastEventId` is the id of the last
    event that came, for clients that cannot send the header Last-Event-ID, which wins over it.
    """

    project: str | None = None
    types: str | None = None
    last_event_id: str | None = None


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
        return Response(headers=HEADERS, media_type=MEDIA_TYPE)
    feed = dependency(request, Feed)
    last_event_id = request.headers.get("last-event-id") or filters.last_event_id
    reader, lost = await feed.join(principal, project_id=project_id, names=names, last_event_id=last_event_id)
    return EventStream(feed.read(reader, lost=lost), lambda: feed.leave(reader))


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
        TextAnswer(MEDIA_TYPE, "Server-sent events until one side closes; the data of each is one JSON object."),
        query=StreamQuery,
    ),
]
