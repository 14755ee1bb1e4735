"""`cmserver mcp`: the server's MCP door, for clients that talk to a program over standard input and output instead of HTTP.

It is a pump and no server of its own: a line goes to /mcp as it is, and what is answered comes back as a line. It adds what HTTP
wants besides: the key, the project of the folder, and the headers that repeat what the message says. Both eras of the protocol
pass: the one that begins with `initialize`, and the one in which each request names its version.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import cast

import click
import httpx
import msgspec

from cmserver.base.configuration import BadSetting, load
from cmserver.base.errors import Invalid
from cmserver.base.redaction.clean import decode_json
from cmserver.cli import talk
from cmserver.cli.client import refusal, unreachable
from cmserver.hooks.attach.folder import ClientFolder, clients_folder
from cmserver.hooks.attach.model import AGENTS, Agent
from cmserver.hooks.client import project_of

Say = Callable[[bytes], None]
"""Takes a line for the client."""

_AGENTS = [one for one in AGENTS if one != "claude-mem"]  # which has tools of its own
_PATIENCE = httpx.Timeout(300.0, connect=5.0, pool=None)
_FAREWELL_SECONDS = 2.0
_PROJECT = b"X-Cmserver-Project"
_PROJECT_BYTES = 4096
"""Hooks leave out a longer one, too."""

_VERSION = "MCP-Protocol-Version"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose header `Mcp-Name` repeats a parameter."""

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_NOT_PASSED_ON = -32603
_NOTHING = b"null"


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """What the pump reads of a client's line. Without an id it is a notification, and nobody waits for an answer."""

    id: object = None
    method: str | None = None
    params: object = None

    def param(self, *path: str) -> object:
        found = self.params
        for name in path:
            found = cast("dict[str, object]", found).get(name) if isinstance(found, dict) else None
        return found


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A server's answer: one of the two is there, and an object."""

    result: msgspec.Raw = msgspec.Raw(_NOTHING)
    error: msgspec.Raw = msgspec.Raw(_NOTHING)


class _Initialized(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    protocol_version: str


class Pump:
    """Passes the lines of one client on, each in a task of its own: requests run beside each other, and `cancelled` ends one."""

    def __init__(self, client: httpx.AsyncClient, say: Say) -> None:
        self._client = client
        self._say = say
        self._version: str | None = None
        """What `initialize` has agreed on; requests of the other era say it themselves."""
        self._running: dict[bytes, asyncio.Task[None]] = {}

    async def take(self, line: bytes) -> None:
        """See a line through: to the server, and its answer back. It never raises for what client or server say."""
        try:
            message = msgspec.convert(decode_json(line), _Message)
        except (Invalid, msgspec.ValidationError) as error:
            code = _PARSE_ERROR if isinstance(error, Invalid) else _INVALID_REQUEST
            self._refuse(_NOTHING, code, f"This is no message of MCP: {error}")
            return
        if message.id is None:
            await self._notify(message, line)
            return
        asked = _as_key(message.id)
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._running[asked] = task
        try:
            await self._ask(asked, message, line)
        finally:
            if self._running.get(asked) is task:
                del self._running[asked]

    async def _notify(self, message: _Message, line: bytes) -> None:
        if message.method == "notifications/cancelled":
            task = self._running.get(_as_key(message.param("requestId")))
            if task is not None:
                task.cancel()
            if message.param("_meta", _VERSION_KEY) is not None or self._version is None:
                return  # over HTTP the end of the request has said it
        with suppress(httpx.HTTPError):
            await self._post(message, line)

    async def _ask(self, asked: bytes, message: _Message, line: bytes) -> None:
        try:
            answer = await self._post(message, line)
        except httpx.HTTPError as error:
            self._refuse(asked, _NOT_PASSED_ON, str(unreachable(self._client, error)))
            return
        try:
            told = msgspec.json.decode(answer.content, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            told = _Answer()
        if bytes(told.result).startswith(b"{"):
            if message.method == "initialize":
                with suppress(msgspec.DecodeError):
                    self._version = msgspec.json.decode(told.result, type=_Initialized).protocol_version
            self._answer(asked, b"result", told.result)
        elif bytes(told.error).startswith(b"{"):
            self._answer(asked, b"error", told.error)
        else:
            self._refuse(asked, _NOT_PASSED_ON, str(refusal(answer)))

    async def _post(self, message: _Message, line: bytes) -> httpx.Response:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **self._repeated(message)}
        return await self._client.post("/mcp", content=line, headers=headers, timeout=_PATIENCE)

    def _repeated(self, message: _Message) -> dict[str, str]:
        """The headers that repeat what the message says; the server compares them."""
        version = message.param("_meta", _VERSION_KEY)
        if not isinstance(version, str):
            return {} if self._version is None or message.method == "initialize" else {_VERSION: header_value(self._version)}
        headers = {_VERSION: header_value(version), "Mcp-Method": header_value(message.method or "")}
        name = message.param(_NAMED_BY.get(message.method or "", ""))
        return {**headers, "Mcp-Name": header_value(name)} if isinstance(name, str) else headers

    def _refuse(self, asked: bytes, code: int, sentence: str) -> None:
        self._answer(asked, b"error", msgspec.Raw(msgspec.json.encode({"code": code, "message": sentence})))

    def _answer(self, asked: bytes, name: bytes, value: msgspec.Raw) -> None:
        self._say(b'{"jsonrpc":"2.0","id":%b,"%b":%b}\n' % (asked, name, msgspec.json.format(bytes(value), indent=-1)))


def _as_key(request_id: object) -> bytes:
    """An id as it stands in an answer: the number 1 is another one than the text "1"."""
    return json.dumps(request_id).encode()


def header_value(text: str) -> str:
    """The text as it is, or as MCP writes into a header what no header can hold."""
    is_wrapped = text.startswith("=?base64?") and text.endswith("?=")
    if text.isascii() and (text.isprintable() or not text) and text == text.strip() and not is_wrapped:
        return text
    return f"=?base64?{b64encode(text.encode('utf-8', 'replace')).decode()}?="


async def pump(client: httpx.AsyncClient, lines: Iterable[bytes], say: Say) -> None:
    """Pass the lines on until there are no more, and give what is still on its way then a moment."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed
            for line in lines:
                loop.call_soon_threadsafe(waiting.put_nowait, line)
            loop.call_soon_threadsafe(waiting.put_nowait, None)

    # A thread, and one that nobody waits for: standard input may be a pipe, a file or a terminal, and a read has no end.
    threading.Thread(target=read, daemon=True).start()
    passing = Pump(client, say)
    tasks: set[asyncio.Task[None]] = set()
    while (line := await waiting.get()) is not None:
        if line.strip():
            task = asyncio.create_task(passing.take(line))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    if tasks:  # a client that is gone waits for nothing, but one may have sent all it had to ask
        await asyncio.wait(tasks, timeout=_FAREWELL_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@click.command()
@click.option("--url", envvar="CMSERVER_URL", show_envvar=True, help="The server; else that of the data folder's credentials.")
@click.option(
    "--agent", type=click.Choice(_AGENTS), help="The server and the key of this agent, as `cmserver connect` has made them for it."
)
@click.option("--project", metavar="NAME", help="The project that is asked about; else that of the folder it is started in.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
def mcp(url: str | None, agent: Agent | None, project: str | None, config_file: Path | None) -> None:
    """Speak MCP on standard input and output, for clients without HTTP.

    Clients start it themselves. The key is the agent's, or that of CMSERVER_KEY_FILE or CMSERVER_KEY, or that of the data folder's
    credentials; it is no argument, because everybody on the machine can read those.
    """
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)  # nothing is open here that would have to be closed
    settings = load(os.environ, config_file=config_file).settings
    address, key = talk.server_of(settings, url, os.environ.get("CMSERVER_KEY")) if agent is None else _connected(agent)
    name = project_header(project)

    async def serve() -> None:
        async with talk.over_http(address, key) as client:
            if name is not None:
                client.headers.update([(_PROJECT, name)])
            await pump(client, sys.stdin.buffer, _print)

    asyncio.run(serve())


def _connected(agent: Agent) -> tuple[str, str]:
    folder = ClientFolder(clients_folder(os.environ), agent)
    connection, key = folder.connection(), folder.key()
    if connection is None or key is None:
        raise BadSetting(f"{agent} is not connected: `cmserver connect {agent}` does it.")
    return connection.url, key


def project_header(named: str | None) -> bytes | None:
    """What hooks would call the project of this folder, as a header; nothing for the folder in which services are started."""
    try:
        here = named or project_of(Path.cwd())
    except OSError:  # the folder is gone
        return None
    text = re.sub(r"[\x00-\x1f\x7f]", "?", here or "").encode("utf-8", "replace")
    return None if text in {b"", b"/"} or len(text) > _PROJECT_BYTES else text


def _print(line: bytes) -> None:
    """Straight into standard output. A client that is gone has closed our input as well."""
    rest = memoryview(line)
    with suppress(BrokenPipeError):
        while rest:
            rest = rest[os.write(1, rest) :]
