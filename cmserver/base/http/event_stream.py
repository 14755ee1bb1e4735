"""The answer that sends events for as long as the client stays."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "text/event-stream"
# Proxies must not buffer the stream.
HEADERS = {"X-Accel-Buffering": "no"}


class EventStream(StreamingResponse):
    """Server-sent events. Calls `leave` however the response ends, also when it never began.

    Not sse-starlette's response, which starts four tasks per stream and replaces uvicorn's signal handlers.
    """

    def __init__(self, text: AsyncIterable[bytes], leave: Callable[[], None], headers: Mapping[str, str] = HEADERS) -> None:
        super().__init__(text, headers=headers, media_type=MEDIA_TYPE)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()
