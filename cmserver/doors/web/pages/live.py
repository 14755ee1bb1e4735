"""What happens in the team, live, as server-sent events for the open pages."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from starlette.responses import Response

from cmserver.access.people.accounts import Accounts
from cmserver.base.http.event_stream import HEADERS, MEDIA_TYPE, EventStream
from cmserver.doors.web import security
from cmserver.doors.web.page import Page
from cmserver.doors.web.visit import Visit
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import NAMES
from cmserver.ops.stream.reader import Reader

_CHECK_SECONDS = 2.0


async def _read(visit: Visit, feed: Feed, reader: Reader, *, lost: bool) -> AsyncGenerator[bytes]:
    """The feed; it ends when the visitor signs out or may not see the team any more."""
    checked_at = time.monotonic()
    async for text in feed.read(reader, lost=lost):
        if time.monotonic() - checked_at > _CHECK_SECONDS:
            if not await _may_still_see(visit):
                return
            checked_at = time.monotonic()
        yield text


async def _may_still_see(visit: Visit) -> bool:
    """Whether the session has not ended, and is in the same team with the scope to read."""
    token = security.session_token(visit.request)
    signed_in = await visit.dependency(Accounts).find(token) if token else None
    principal = signed_in.principal if signed_in else None
    return principal is not None and principal.team_id == visit.team_id and principal.may("observations:read")


async def get_live(visit: Visit) -> Response:
    """Server-sent events of the team, as `GET /v1/stream` sends them."""
    if visit.request.method == "HEAD":
        return Response(headers=security.HEADERS, media_type=MEDIA_TYPE)
    feed = visit.dependency(Feed)
    reader, lost = await feed.join(
        visit.principal,
        project_id=visit.principal.project_id,
        names=frozenset(NAMES),
        last_event_id=visit.request.headers.get("last-event-id"),
    )
    headers = {**security.HEADERS, **HEADERS}
    return EventStream(_read(visit, feed, reader, lost=lost), lambda: feed.leave(reader), headers)


routes = [Page("GET", "/ui/live", get_live, scope="observations:read")]
