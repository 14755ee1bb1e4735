"""The live stream in the form that claude-mem's viewer reads: objects that say their type, without names and ids.

It is the stream of /v1/stream, in other words: the same feed, the same limits, and it ends with it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import msgspec
from msgspec import field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.http.operation import Operation, Text
from cmserver.base.http.wire import db
from cmserver.base.ids import epoch_ms
from cmserver.compat.api.guest import guest
from cmserver.compat.api.worker.lists import processing, projects
from cmserver.compat.api.worker.rows import ObservationRow, SummaryRow, Where, observation_rows, summary_rows
from cmserver.observations import repository as observations
from cmserver.observations.read import served
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import Name
from cmserver.ops.stream.reader import Reader

_MEDIA_TYPE = "text/event-stream"
_HEADERS = {"X-Accel-Buffering": "no"}
_HEARD: frozenset[Name] = frozenset({"observation.created", "job.updated"})
_AT_ONCE = 100
_ENCODER = msgspec.json.Encoder()


class ConnectedTold(msgspec.Struct, tag_field="type", tag="connected", frozen=True):
    timestamp: int


class InitialLoadTold(msgspec.Struct, tag_field="type", tag="initial_load", frozen=True):
    projects: list[str]
    sources: list[str]
    projects_by_source: dict[str, list[str]] = field(name="projectsBySource")


class ProcessingTold(msgspec.Struct, tag_field="type", tag="processing_status", frozen=True):
    is_processing: bool = field(name="isProcessing")
    queue_depth: int = field(name="queueDepth")


class ObservationTold(msgspec.Struct, tag_field="type", tag="new_observation", frozen=True):
    observation: ObservationRow


class SummaryTold(msgspec.Struct, tag_field="type", tag="new_summary", frozen=True):
    summary: SummaryRow


Telling = ConnectedTold | InitialLoadTold | ProcessingTold | ObservationTold | SummaryTold


class _Named(msgspec.Struct):
    """What of our own events must be known here."""

    id: UUID


class _Stream(StreamingResponse):
    """Gives the reader back however the response ends, also when it never began."""

    def __init__(self, feed: Feed, reader: Reader, opened: Db, who: Principal) -> None:
        super().__init__(_told(feed, reader, opened, who), headers=_HEADERS, media_type=_MEDIA_TYPE)
        self._feed = feed
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._reader)


async def get_viewer_stream(request: Request) -> Response:
    """What happens in the team, as it happens, in the form of claude-mem's viewer: server-sent events without names.

    Their types are connected, initial_load, processing_status, new_observation and new_summary. Nothing is told again to who comes
    back: GET /v1/stream does that.
    """
    who = await guest(request)
    if request.method == "HEAD":
        return Response(headers=_HEADERS, media_type=_MEDIA_TYPE)
    feed = cast("Feed", request.app.state.feed)
    reader, _ = await feed.join(who, project_id=who.project_id, names=_HEARD, last_event_id=None)
    return _Stream(feed, reader, db(request), who)


async def _told(feed: Feed, reader: Reader, opened: Db, who: Principal) -> AsyncGenerator[bytes]:
    """The text of the stream, until the reader is ended."""
    try:
        yield _event(ConnectedTold(epoch_ms(datetime.now(UTC))))
        yield await _beginning(opened, who)
        async for text in feed.read(reader, lost=False):
            created, is_work = _heard(text)
            pieces = [piece async for piece in _news(opened, who, created, is_work=is_work)]
            yield b"".join(pieces) or b": still here\n\n"
    except Unavailable:
        return  # the client comes again


async def _beginning(opened: Db, who: Principal) -> bytes:
    async with opened.tenant(who.team_id) as conn:
        known = await projects(conn, who, Where(who.project_id))
        work = await processing(conn, who, Where(who.project_id))
    first = InitialLoadTold(known.projects, known.sources, known.projects_by_source)
    return _event(first) + _event(ProcessingTold(work.is_processing, work.queue_depth))


async def _news(opened: Db, who: Principal, created: list[UUID], *, is_work: bool) -> AsyncGenerator[bytes]:
    for start in range(0, len(created), _AT_ONCE):
        async with opened.tenant(who.team_id) as conn:
            wanted = created[start : start + _AT_ONCE]
            found = {one.id: one for one in await observations.by_ids(conn, who.team_id, wanted)}
            seen = [found[one] for one in wanted if one in found and who.sees(found[one].project_id)]
            await served(conn, who, who.project_id, "stream", seen)
            rows = await observation_rows(conn, who, [one for one in seen if one.kind != "summary"])
            summaries = await summary_rows(conn, who, [one for one in seen if one.kind == "summary"])
        told = [*map(ObservationTold, rows), *map(SummaryTold, summaries)]
        yield b"".join(map(_event, told))
    if is_work:
        async with opened.tenant(who.team_id) as conn:
            work = await processing(conn, who, Where(who.project_id))
        yield _event(ProcessingTold(work.is_processing, work.queue_depth))


def _heard(text: bytes) -> tuple[list[UUID], bool]:
    """Of some events of the feed: the observations that were made, and whether a job has moved."""
    created: list[UUID] = []
    is_work = False
    for name, data in _events(text):
        if name == b"observation.created":
            created.append(msgspec.json.decode(data, type=_Named).id)
        is_work = is_work or name == b"job.updated"
    return created, is_work


def _events(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of each event in the text; the feed never gives half of one."""
    for block in text.split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
        if b"event" in fields:
            yield fields[b"event"], fields.get(b"data", b"{}")


def _event(told: Telling) -> bytes:
    return b"data: %b\n\n" % _ENCODER.encode(told)


routes = [
    Operation(
        "GET",
        "/stream",
        get_viewer_stream,
        scope="observations:read",
        answers={200: Text(_MEDIA_TYPE, "Server-sent events until one side closes; the data of each is one JSON object.")},
    ),
]
