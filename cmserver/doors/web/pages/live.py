"""What happens in the team, live, as server-sent events for the open pages."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cmserver.access.people.accounts import Accounts
from cmserver.doors.web import security
from cmserver.doors.web.page import Page
from cmserver.doors.web.visit import Visit
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import NAMES
from cmserver.ops.stream.reader import Reader

_CHECK_SECONDS = 2.0


class _Live(StreamingResponse):
    """Leaves the feed however the response ends. It ends when the visitor signs out or may not see the team any more."""

    def __init__(self, visit: Visit, feed: Feed, reader: Reader, *, lost: bool) -> None:
        headers = {**security.HEADERS, "X-Accel-Buffering": "no"}
        super().__init__(self._read(visit, feed, reader, lost=lost), headers=headers, media_type="text/event-stream")
        self._feed = feed
        self._reader = reader

    async def _read(self, visit: Visit, feed: Feed, reader: Reader, *, lost: bool) -> AsyncGenerator[bytes]:
        checked_at = time.monotonic()
        async for text in feed.read(reader, lost=lost):
            if time.monotonic() - checked_at > _CHECK_SECONDS:
                if not await _may_still_see(visit):
                    return
                checked_at = time.monotonic()
            yield text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._reader)


async def _may_still_see(visit: Visit) -> bool:
    """Whether the session has not ended, and is in the same team with the scope to read."""
    token = security.session_token(visit.request)
    signed_in = await visit.dependency(Accounts).find(token) if token else None
    principal = signed_in.principal if signed_in else None
    return principal is not None and principal.team_id == visit.team_id and principal.may("observations:read")


async def get_live(visit: Visit) -> Response:
    """Server-sent events of the team, as `GET /v1/stream` sends them."""
    if visit.request.method == "HEAD":
        return Response(headers=security.HEADERS, media_type="text/event-stream")
    feed = visit.dependency(Feed)
    reader, lost = await feed.join(
        visit.principal,
        project_id=visit.principal.project_id,
        names=frozenset(NAMES),
        last_event_id=visit.request.headers.get("last-event-id"),
    )
    return _Live(visit, feed, reader, lost=lost)


routes = [Page("GET", "/ui/live", get_live, scope="observations:read")]
