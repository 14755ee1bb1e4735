"""The answer that sends what comes in a feed."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.reader import Reader

MEDIA_TYPE = "text/event-stream"
# Proxies must not buffer the stream.
HEADERS = {"X-Accel-Buffering": "no"}


class FeedResponse(StreamingResponse):
    """Server-sent events. Leaves the feed however the response ends, also when it never began.

    Not sse-starlette's response, which starts four tasks per stream and replaces uvicorn's signal handlers.
    """

    def __init__(self, feed: Feed, reader: Reader, text: AsyncIterable[bytes], headers: Mapping[str, str] = HEADERS) -> None:
        super().__init__(text, headers=headers, media_type=MEDIA_TYPE)
        self._feed = feed
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._reader)
