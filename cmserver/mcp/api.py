"""The door of agents: the Model Context Protocol over Streamable HTTP, stateless, in both of its eras.

Each request has its key, and is answered in JSON. There are no streams: what this server has to say it says when it is asked.
"""

from __future__ import annotations

from typing import cast

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from cmserver.access.model import Principal
from cmserver.access.projects import canonical_id
from cmserver.base.errors import Forbidden, Invalid, Unauthenticated
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import body, caller
from cmserver.mcp.call import Call, Verbs
from cmserver.mcp.message import bounded, readable
from cmserver.mcp.server import server_for
from cmserver.mcp.site import Site

PROJECT_HEADER = "X-Cmserver-Project"


async def post_mcp(request: Request) -> Response:
    """One message of the Model Context Protocol, and its answer; a notification is taken with 202."""
    cast("Site", request.app.state.site).check(request.headers.getlist("host"), request.headers.getlist("origin"))
    who = await _caller(request)
    raw = await body(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Invalid("A message is sent as JSON: with the header `Content-Type: application/json`.")
    call = Call(
        who=who,
        verbs=cast("Verbs", request.app.state.verbs),
        project=_project(request),
        size_bytes=len(raw),
    )
    return _Answered(call, readable(bounded(raw)))


def _project(request: Request) -> str | None:
    """Where the client works, as hooks say it, in UTF-8; Invalid when no project can be called so."""
    said = request.headers.get(PROJECT_HEADER, "").encode("latin-1").decode("utf-8", "replace").strip()
    try:
        return canonical_id(said) if said else None
    except Invalid as error:
        raise Invalid(f"{PROJECT_HEADER}: {error}") from error


async def _caller(request: Request) -> Principal:
    """A key that is no good is told as the protocol wants it: 401, as without one."""
    try:
        return await caller(request, Principal)
    except Forbidden as error:
        raise Unauthenticated(str(error)) from error


class _Answered(Response):
    """What the SDK answers to a body that has been read."""

    def __init__(self, call: Call, raw: bytes) -> None:
        super().__init__()
        self._call = call
        self._raw = raw

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = max(self._call.size_bytes, len(self._raw)) + 1  # ours has been kept
        manager = StreamableHTTPSessionManager(
            server_for(self._call), json_response=True, stateless=True, max_request_body_size=most
        )
        async with manager.run():
            await manager.handle_request(_trimmed(scope), _again(self._raw, receive), send)


def _trimmed(scope: Scope) -> Scope:
    """Without spaces around what headers say: they are no part of it, and httptools leaves those at the end."""
    return {**scope, "headers": [(name, value.strip()) for name, value in scope["headers"]]}


def _again(raw: bytes, receive: Receive) -> Receive:
    """The body once more, and then whatever comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return replay


_ANSWERED = {200: operation.Text("application/json", "The answer, of JSON-RPC."), 202: operation.Text("application/json", "Taken.")}

routes = [Operation("POST", path, post_mcp, scope="", answers=_ANSWERED) for path in ("/mcp", "/v1/mcp")]
