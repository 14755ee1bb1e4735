"""The protocol in a test: its own client over a real socket, in both of its eras, and single messages as they are sent."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import httpx
import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from cmserver.base.http.frame import AsgiFrame
from cmserver.observations.plain import FIRST_LINE, LAST_LINE
from tests.conftest import Person
from tests.timeouts import ENOUGH_SECONDS, until

Mode = Literal["auto", "legacy"]
MODES: tuple[Mode, Mode] = ("auto", "legacy")
"""Of the two eras of the protocol: that of 2026-07-28, which asks the server what it is, and the one before, which initializes."""

SENT = {"Host": "localhost", "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
"""What each client of the protocol sends."""
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def serving(app: AsgiFrame) -> AsyncGenerator[str]:
    """The address at which the application is served meanwhile, by the server that we run."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))  # named TCP, so that asyncio sends at once: else each answer waits 40 ms for an acknowledgement
    server = _Server(uvicorn.Config(app, log_config=None, lifespan="off", http="httptools", ws="none"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await until("the server is started", lambda: server.started, task)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def client_at(url: str, headers: Mapping[str, str], *, mode: Mode = "auto", **options: Any) -> AsyncGenerator[Client]:
    """The SDK's client, connected there with these headers in each request; `options` are its own."""
    async with (
        httpx2.AsyncClient(headers=dict(headers), timeout=ENOUGH_SECONDS, trust_env=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, **options) as client,
    ):
        yield client


@asynccontextmanager
async def connected(
    app: AsgiFrame, person: Person | None, *, mode: Mode = "auto", headers: Mapping[str, str] | None = None, **options: Any
) -> AsyncGenerator[Client]:
    """The SDK's client with somebody's key, or none, over a real socket; `options` are the client's own."""
    async with (
        serving(app) as url,
        client_at(url, {**(person.headers if person else {}), **(headers or {})}, mode=mode, **options) as client,
    ):
        yield client


async def called(client: Client, tool: str, **arguments: object) -> tuple[str, bool]:
    """What the tool answers, and whether that is a refusal."""
    return said(await client.call_tool(tool, arguments))


def said(result: CallToolResult) -> tuple[str, bool]:
    """The one text of a result, and whether it is a refusal. There is nothing else in it: a client would show that instead."""
    assert result.structured_content is None
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text, bool(result.is_error)


async def rpc(
    client: httpx.AsyncClient, person: Person | None, method: str, params: Mapping[str, object] | None = None, **headers: str
) -> httpx.Response:
    """One request of the older era, as it is sent. Underscores in the names of headers are hyphens."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})}
    return await post(client, person, json.dumps(message), **headers)


async def post(client: httpx.AsyncClient, person: Person | None, content: str | bytes, **headers: str) -> httpx.Response:
    """These bytes, as a client sends a message."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = httpx.Headers(SENT)
    sent.update(person.headers if person else {})
    sent.update(named)
    return await client.post("/mcp", content=content, headers=sent)


async def call(client: httpx.AsyncClient, person: Person, tool: str, **arguments: object) -> tuple[str, bool]:
    """What the tool answers, without a socket: for many calls in one test."""
    answered = await rpc(client, person, "tools/call", {"name": tool, "arguments": arguments})
    assert answered.status_code == 200, answered.text
    result = answered.json()["result"]
    assert "structuredContent" not in result
    (content,) = result["content"]
    return content["text"], bool(result.get("isError"))


def lines(text: str) -> list[str]:
    """What stands in the one block of a text."""
    before, first, rest = text.partition(f"{FIRST_LINE}\n")
    inside, last, _ = rest.partition(LAST_LINE)
    assert first, text
    assert last, text
    assert FIRST_LINE not in before
    return inside.splitlines()


def numbers(text: str) -> list[int]:
    """Of the observations that have a line, in its order."""
    return [int(found[1]) for line in lines(text) if (found := re.match(r"(?:→ )?#(\d+) ", line))]


def calling(tool: str, arguments: str) -> bytes:
    """A call with arguments as they are written."""
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s}}' % (
        tool.encode(),
        arguments.encode(),
    )
