"""The Model Context Protocol over Streamable HTTP: stateless, answered in JSON, in both eras of the protocol."""

from __future__ import annotations

import json
import re

import msgspec
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from cmserver.access.model import Principal
from cmserver.access.projects import canonical_id
from cmserver.base.errors import Forbidden, Invalid, TooLarge, Unauthenticated
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import body, caller, dependency
from cmserver.base.json_text import decode_json
from cmserver.base.settings import Settings
from cmserver.base.text import storable
from cmserver.mcp.aliases import list_tools
from cmserver.mcp.allowed_hosts import AllowedHosts
from cmserver.mcp.call import Call
from cmserver.mcp.server import make_server

PROJECT_HEADER = "X-Cmserver-Project"
_MAX_RESPONSES_BYTES = 8_192
"""Limit of the client's input responses: it is asked only for its folders."""
_MAX_OTHER_BYTES = 131_072
"""Limit of everything but a tool's arguments: a client may send its icons with each message."""
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def post_mcp(request: Request) -> Response:
    """One message of the Model Context Protocol, and its answer; a notification is taken with 202."""
    dependency(request, AllowedHosts).check(request.headers.getlist("host"), request.headers.getlist("origin"))
    principal = await _authenticate(request)
    raw = await body(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Invalid("Send the message as JSON, with the header `Content-Type: application/json`.")
    call = Call(
        principal=principal,
        dependencies=request.scope["dependencies"],
        tools=list_tools(dependency(request, Settings).mcp_aliases),
        project=_client_project(request),
        size_bytes=len(raw),
    )
    return _McpResponse(call, _escape_surrogates(_limit_message(raw)))


def _client_project(request: Request) -> str | None:
    """The project in the header, in UTF-8; Invalid when no project can have that name."""
    name = request.headers.get(PROJECT_HEADER, "").encode("latin-1").decode("utf-8", "replace").strip()
    try:
        return canonical_id(name) if name else None
    except Invalid as error:
        raise Invalid(f"{PROJECT_HEADER}: {error}") from error


async def _authenticate(request: Request) -> Principal:
    """The protocol wants 401 for a key that is not valid, as without one."""
    try:
        return await caller(request, Principal)
    except Forbidden as error:
        raise Unauthenticated(str(error)) from error


class _McpResponse(Response):
    """The SDK's answer to a body that has been read."""

    def __init__(self, call: Call, raw: bytes) -> None:
        super().__init__()
        self._call = call
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


class _Params(msgspec.Struct, rename="camel"):
    arguments: msgspec.Raw = msgspec.Raw()
    input_responses: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    params: _Params
    method: str = ""


def _limit_message(raw: bytes) -> bytes:
    """The message without input responses that are too large; TooLarge when the rest, but for a tool's arguments, is.

    The SDK needs hundreds of times a part's size to validate it against each form it may have. It hands on only a tool's arguments
    as they are. What is no message becomes empty, which the SDK refuses.
    """
    if len(raw) <= _MAX_RESPONSES_BYTES:
        return raw
    try:
        raw.decode()  # the SDK's parser takes other encodings, too
        message = msgspec.json.decode(raw, type=_Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    responses_bytes = len(message.params.input_responses)
    arguments_bytes = len(message.params.arguments) if message.method == "tools/call" else 0
    if len(raw) - responses_bytes - arguments_bytes > _MAX_OTHER_BYTES:
        raise TooLarge(f"A message has at most {_MAX_OTHER_BYTES:,} bytes besides the `arguments` of a tool.")
    if responses_bytes <= _MAX_RESPONSES_BYTES:
        return raw
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    params = msgspec.json.decode(fields["params"], type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**fields, "params": {**params, "inputResponses": {}}})


def _escape_surrogates(raw: bytes) -> bytes:
    """Without lone surrogates, which the SDK refuses: some clients cut texts inside an emoji, and REST accepts those."""
    if not _ESCAPED_SURROGATE.search(raw):
        return raw
    return storable(json.dumps(decode_json(raw), ensure_ascii=False)).encode()


_ANSWERS = {
    200: operation.TextAnswer("application/json", "The answer, of JSON-RPC."),
    202: operation.TextAnswer("application/json", "Taken."),
}

routes = [Operation("POST", path, post_mcp, scope="", answers=_ANSWERS) for path in ("/mcp", "/v1/mcp")]
