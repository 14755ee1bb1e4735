"""How long a body may take and how large it may be, through a real server's socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest

from cmserver.base.http import server, wire
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.base.http.tools import exchange, serving
from tests.conftest import Cast
from tests.timeouts import ENOUGH_SECONDS


@pytest.fixture
def body_timeout_seconds() -> float:
    return ENOUGH_SECONDS


@pytest.fixture(autouse=True)
def small(body_timeout_seconds: float, monkeypatch: pytest.MonkeyPatch):
    """Less time, and smaller bodies."""
    for module in (wire, server):
        monkeypatch.setattr(module, "BODY_SECONDS", body_timeout_seconds)
    monkeypatch.setattr(wire, "BODY_MAX_BYTES", 2048)


@pytest.fixture
async def port(app: AsgiFrame, settings: Settings) -> AsyncGenerator[int]:
    """Where the application is served."""
    async with serving(app, settings) as port:
        yield port


def head(cast: Cast, *lines: str) -> bytes:
    fixed = ["POST /v1/events HTTP/1.1", "Host: cmserver", f"X-Api-Key: {cast.alice.key}", "Content-Type: application/json"]
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("body_timeout_seconds", [0.3])
@pytest.mark.parametrize(
    ("header", "begun"),
    [
        ("Content-Length: 100", b""),
        ("Content-Length: 100", b'{"eventType": "tool'),
        ("Transfer-Encoding: chunked", chunk(b'{"eventType": "tool')),
    ],
)
async def test_a_body_that_does_not_come_is_given_up_and_the_connection_closed(cast: Cast, port: int, header: str, begun: bytes):
    answer = await exchange(port, head(cast, header), begun)

    first, _, rest = answer.partition(b"\r\n")
    assert first.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in rest.lower()
    assert b'"error":"RequestTimeout"' in rest
    assert b"the limit of this server" in rest


async def test_a_body_without_announced_length_is_refused_when_it_grows_too_large(cast: Cast, port: int):
    answer = await exchange(
        port, head(cast, "Transfer-Encoding: chunked", "Connection: close"), chunk(b" " * 1500), chunk(b" " * 1500)
    )

    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"error":"PayloadTooLarge"' in answer


async def test_a_body_in_pieces_that_ends_in_time_is_read(cast: Cast, port: int):
    body = b'{"eventType": "tool_use", "projectId": "orders"}'

    answer = await exchange(
        port, head(cast, "Transfer-Encoding: chunked", "Connection: close"), chunk(body[:20]), chunk(body[20:]), b"0\r\n\r\n"
    )

    assert answer.startswith(b"HTTP/1.1 201")


async def test_one_key_cannot_have_all_connections_wait_for_bodies(
    app: AsgiFrame, cast: Cast, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    for module in (wire, server):
        monkeypatch.setattr(module, "MAX_CONNECTIONS", 12)
    async with serving(app, settings) as port, AsyncExitStack() as stack:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in held:
            stack.callback(writer.close)
            writer.write(head(cast, "Content-Length: 100", "Expect: 100-continue"))
            assert (await asyncio.wait_for(reader.readline(), ENOUGH_SECONDS)).startswith(b"HTTP/1.1 100")  # it waits

        refused = await exchange(port, head(cast, "Content-Length: 100", "Connection: close"))

        assert refused.startswith(b"HTTP/1.1 503")
        assert b"wait for their bodies" in refused


async def test_a_body_of_which_nothing_comes_is_given_up_early(cast: Cast, port: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wire, "_FIRST_BYTES_SECONDS", 0.1)

    answer = await exchange(port, head(cast, "Content-Length: 100"), b"")

    assert answer.startswith(b"HTTP/1.1 408")
    assert b"Nothing of the body came" in answer
