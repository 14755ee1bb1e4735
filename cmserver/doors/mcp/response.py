"""Has the SDK answer a message. A module of its own, since the SDK is loaded with the first message."""

from __future__ import annotations

import msgspec
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from cmserver.access.model import Principal
from cmserver.base.http.wire import dependency
from cmserver.base.settings import Settings
from cmserver.doors.mcp.aliases import list_tools
from cmserver.doors.mcp.call import Call
from cmserver.doors.mcp.server import make_server


class McpResponse(Response):
    """The SDK's answer to a body that has been read."""

    def __init__(self, request: Request, principal: Principal, project: str | None, raw: bytes, *, size_bytes: int) -> None:
        super().__init__()
        self._call = Call(
            principal=msgspec.structs.replace(principal, by_tool=True),
            dependencies=request.scope["dependencies"],
            tools=list_tools(dependency(request, Settings).mcp_aliases),
            project=project,
            size_bytes=size_bytes,
        )
        self._raw = raw

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        max_bytes = max(self._call.size_bytes, len(self._raw)) + 1  # our own limit has been checked
        manager = StreamableHTTPSessionManager(
            make_server(self._call), json_response=True, stateless=True, max_request_body_size=max_bytes
        )
        # httptools leaves spaces at the end of header values.
        stripped = {**scope, "headers": [(name, value.strip()) for name, value in scope["headers"]]}
        async with manager.run():
            await manager.handle_request(stripped, _replay(self._raw, receive), send)


def _replay(raw: bytes, receive: Receive) -> Receive:
    """Receives the body once more, and then what comes after it."""
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return replay
