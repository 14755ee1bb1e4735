"""The Model Context Protocol over Streamable HTTP: stateless, answered in JSON, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import canonical_id
from cmserver.base.errors import Forbidden, Invalid, TooLarge, Unauthenticated
from cmserver.base.http import operation
from cmserver.base.http.operation import post
from cmserver.base.http.wire import answer, body, caller, dependency
from cmserver.base.json_text import decode_json
from cmserver.base.text import storable
from cmserver.doors.mcp.allowed_hosts import AllowedHosts

if TYPE_CHECKING:
    from cmserver.doors.mcp.response import McpResponse

PROJECT_HEADER = "X-Cmserver-Project"
_MAX_RESPONSES_BYTES = 8_192
"""Limit of the client's input responses: it is asked only for its folders."""
_MAX_OTHER_BYTES = 131_072
"""Limit of everything but a tool's arguments: a client may send its icons with each message."""
_response: type[McpResponse] | None = None
_INVALID_REQUEST = -32600
_NO_BATCHES = "Send one message in a request: this protocol has no batches."
_ODD_ARGUMENTS = re.compile(rb'"arguments"\s{0,9}:\s{0,9}["\[]')
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def post_mcp(request: Request) -> Response:
    """One message of the Model Context Protocol, and its answer; a notification is taken with 202."""
    dependency(request, AllowedHosts).check(request.headers.getlist("host"), request.headers.getlist("origin"))
    principal = await _authenticate(request)
    raw = await body(request)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Invalid("Send the message as JSON, with the header `Content-Type: application/json`.")
    if raw.lstrip()[:1] == b"[":
        return answer({"jsonrpc": "2.0", "id": None, "error": {"code": _INVALID_REQUEST, "message": _NO_BATCHES}}, 400)
    project, message = _client_project(request), _escape_surrogates(_unwrap_arguments(_limit_message(raw)))
    global _response  # noqa: PLW0603 - loaded once
    if _response is None:
        _response = await asyncio.to_thread(_load)
    return _response(request, principal, project, message, size_bytes=len(raw))


def _load() -> type[McpResponse]:
    from cmserver.doors.mcp.response import McpResponse  # noqa: PLC0415 - the SDK: half a second and 23 MB, for those who use it

    return McpResponse


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


def _unwrap_arguments(raw: bytes) -> bytes:
    """The call of a tool with arguments as an object, where a client has written that as text, or as an empty list."""
    if not _ODD_ARGUMENTS.search(raw):
        return raw
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        params = msgspec.json.decode(fields.get("params", b"{}"), type=dict[str, msgspec.Raw])
        arguments: object = msgspec.json.decode(params.get("arguments", b"{}"))
        if isinstance(arguments, str):
            arguments = decode_json(arguments.encode()) if arguments.strip() else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError, Invalid):
        return raw
    if not isinstance(arguments, dict) and arguments != []:
        return raw
    return msgspec.json.encode({**fields, "params": {**params, "arguments": cast("object", arguments or {})}})


def _escape_surrogates(raw: bytes) -> bytes:
    """Without lone surrogates, which the SDK refuses: some clients cut texts inside an emoji, and REST accepts those."""
    if not _ESCAPED_SURROGATE.search(raw):
        return raw
    return storable(json.dumps(decode_json(raw), ensure_ascii=False)).encode()


_ANSWERS = {
    200: operation.TextAnswer("application/json", "The answer, of JSON-RPC."),
    202: operation.TextAnswer("application/json", "Taken."),
}

routes = [post(path, post_mcp, "", _ANSWERS) for path in ("/mcp", "/v1/mcp")]
