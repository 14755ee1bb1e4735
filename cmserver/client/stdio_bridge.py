"""Connects an MCP client that talks over standard input and output to the server's /mcp.

A line goes to the server as it is, and its answer comes back as a line. The bridge adds what HTTP needs besides: the key, the
folder's project, and the headers that repeat what the message says. Both eras of the protocol pass: the one that begins with
`initialize`, and the one in which each request names its version.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import cast

import httpx
import msgspec

from cmserver.base.configuration import BadSetting
from cmserver.base.errors import Invalid
from cmserver.base.http.wire import PRIVATE_HEADER
from cmserver.base.json_text import decode_json
from cmserver.client import server_api
from cmserver.client.client_folder import ClientFolder, clients_folder, is_private_folder, read_project
from cmserver.client.server_api import refusal, unreachable

WriteLine = Callable[[bytes], None]
"""Sends a line to the client."""

_TIMEOUT = httpx.Timeout(300.0, connect=5.0, pool=None)
_LAST_ANSWERS_SECONDS = 2.0
_PROJECT = b"X-Cmserver-Project"
_PROJECT_BYTES = 4096
"""Hooks leave out a longer one, too."""

_VERSION = "MCP-Protocol-Version"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Method -> the parameter that the header `Mcp-Name` repeats."""

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_INTERNAL_ERROR = -32603
_NULL = b"null"


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a client's line. Without an id it is a notification, which has no answer."""

    id: object = None
    method: str | None = None
    params: object = None

    def param(self, *path: str) -> object:
        value = self.params
        for name in path:
            value = cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None
        return value


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A server's answer: one of the two is an object."""

    result: msgspec.Raw = msgspec.Raw(_NULL)
    error: msgspec.Raw = msgspec.Raw(_NULL)


class _Initialized(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    protocol_version: str


class StdioBridge:
    """Passes on the lines of one client. Requests run concurrently, each in its task, and `notifications/cancelled` ends one."""

    def __init__(self, http: httpx.AsyncClient, write_line: WriteLine) -> None:
        self._http = http
        self._write_line = write_line
        self._version: str | None = None
        """The version that `initialize` agreed on; in the other era each request names it."""
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    async def handle(self, line: bytes) -> None:
        """Send a line to the server, and its answer to the client. Never raises for what client or server send."""
        try:
            message = msgspec.convert(decode_json(line), _Message)
        except (Invalid, msgspec.ValidationError) as error:
            code = _PARSE_ERROR if isinstance(error, Invalid) else _INVALID_REQUEST
            self._refuse(_NULL, code, f"Not a message of MCP: {error}")
            return
        if message.id is None:
            await self._notify(message, line)
            return
        request_id = _encode_id(message.id)
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._tasks[request_id] = task
        try:
            await self._request(request_id, message, line)
        finally:
            if self._tasks.get(request_id) is task:
                del self._tasks[request_id]

    async def _notify(self, message: _Message, line: bytes) -> None:
        """Pass on a notification, which has no answer; a cancellation also ends our request to the server."""
        if message.method == "notifications/cancelled":
            task = self._tasks.get(_encode_id(message.param("requestId")))
            if task is not None:
                task.cancel()
            if message.param("_meta", _VERSION_KEY) is not None or self._version is None:
                return  # the end of the HTTP request has told the server
        with suppress(httpx.HTTPError):
            await self._post(message, line)

    async def _request(self, request_id: bytes, message: _Message, line: bytes) -> None:
        """Pass on a request, and write the server's answer or an error."""
        try:
            response = await self._post(message, line)
        except httpx.HTTPError as error:
            self._refuse(request_id, _INTERNAL_ERROR, str(unreachable(self._http, error)))
            return
        try:
            answer = msgspec.json.decode(response.content, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            answer = _Answer()
        if bytes(answer.result).startswith(b"{"):
            if message.method == "initialize":
                with suppress(msgspec.DecodeError):
                    self._version = msgspec.json.decode(answer.result, type=_Initialized).protocol_version
            self._answer(request_id, b"result", answer.result)
        elif bytes(answer.error).startswith(b"{"):
            self._answer(request_id, b"error", answer.error)
        else:
            self._refuse(request_id, _INTERNAL_ERROR, str(refusal(response)))

    async def _post(self, message: _Message, line: bytes) -> httpx.Response:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **self._headers(message)}
        return await self._http.post("/mcp", content=line, headers=headers, timeout=_TIMEOUT)

    def _headers(self, message: _Message) -> dict[str, str]:
        """The headers that repeat what the message says; the server compares them."""
        version = message.param("_meta", _VERSION_KEY)
        if not isinstance(version, str):
            return {} if self._version is None or message.method == "initialize" else {_VERSION: header_value(self._version)}
        headers = {_VERSION: header_value(version), "Mcp-Method": header_value(message.method or "")}
        name = message.param(_NAME_PARAMETERS.get(message.method or "", ""))
        return {**headers, "Mcp-Name": header_value(name)} if isinstance(name, str) else headers

    def _refuse(self, request_id: bytes, code: int, sentence: str) -> None:
        self._answer(request_id, b"error", msgspec.Raw(msgspec.json.encode({"code": code, "message": sentence})))

    def _answer(self, request_id: bytes, name: bytes, value: msgspec.Raw) -> None:
        self._write_line(b'{"jsonrpc":"2.0","id":%b,"%b":%b}\n' % (request_id, name, msgspec.json.format(bytes(value), indent=-1)))


def _encode_id(request_id: object) -> bytes:
    """An id as JSON: the number 1 is not the text "1"."""
    return json.dumps(request_id).encode()


def header_value(text: str) -> str:
    """The text, encoded as MCP says if a header cannot hold it."""
    is_encoded = text.startswith("=?base64?") and text.endswith("?=")
    if text.isascii() and (text.isprintable() or not text) and text == text.strip() and not is_encoded:
        return text
    return f"=?base64?{b64encode(text.encode('utf-8', 'replace')).decode()}?="


def serve_stdio(url: str, key: str, project: str | None, folder: str | None = None) -> None:
    """Connect standard input and output to that server until the input ends."""
    headers = folder_headers(project, folder)

    async def serve() -> None:
        async with server_api.open_http_client(url, key) as http:
            http.headers.update(headers)
            await run_bridge(http, sys.stdin.buffer, _write_stdout)

    asyncio.run(serve())


async def run_bridge(http: httpx.AsyncClient, lines: Iterable[bytes], write_line: WriteLine) -> None:
    """Pass the lines on until they end, and wait a moment for the last answers."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed
            for line in lines:
                loop.call_soon_threadsafe(queue.put_nowait, line)
            loop.call_soon_threadsafe(queue.put_nowait, None)

    # A daemon thread: standard input may be a pipe, a file or a terminal, and a read of it cannot be cancelled.
    threading.Thread(target=read, daemon=True).start()
    bridge = StdioBridge(http, write_line)
    tasks: set[asyncio.Task[None]] = set()
    while (line := await queue.get()) is not None:
        if line.strip():
            task = asyncio.create_task(bridge.handle(line))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks, timeout=_LAST_ANSWERS_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def find_connected_server(agent: str) -> tuple[str, str]:
    """URL and key of a connected agent."""
    folder = ClientFolder(clients_folder(os.environ), agent)
    connection, key = folder.connection(), folder.key()
    if connection is None or key is None:
        raise BadSetting(f"{agent} is not connected. Run `cmserver connect {agent}`.")
    return connection.url, key


def folder_headers(name: str | None, folder: str | None = None) -> list[tuple[bytes, bytes]]:
    """The project as a header: the given one, or what hooks call that of the folder, by default of the working folder. And another
    one where a session in that folder is private to its person.

    No project for a folder that is not there, as where an editor has none open, and for those in which programs are started that
    work in none: the root folder and the home folder.
    """
    path = None if folder is None else Path(folder)
    project, headers = name, list[tuple[bytes, bytes]]()
    with suppress(OSError, RuntimeError):  # the folder is not there, or nobody's home is known
        if is_private_folder(path):
            headers.append((PRIVATE_HEADER.encode(), b"1"))
        here = name or read_project(path)
        project = here if name is not None or here != str(Path.home()) else None
    value = re.sub(r"[\x00-\x1f\x7f]", "?", project or "").encode("utf-8", "replace")
    return headers if value in {b"", b"/"} or len(value) > _PROJECT_BYTES else [(_PROJECT, value), *headers]


def _write_stdout(line: bytes) -> None:
    """Unbuffered. A client that is gone has closed our input as well."""
    rest = memoryview(line)
    with suppress(BrokenPipeError):
        while rest:
            rest = rest[os.write(1, rest) :]
