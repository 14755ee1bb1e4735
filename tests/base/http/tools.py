"""A real server on a real socket, and clients that say exactly these bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import msgspec

from cmserver.base.http.frame import AsgiFrame
from cmserver.base.http.server import make_server
from cmserver.base.settings import Settings
from tests.timeouts import ENOUGH_SECONDS, until


@asynccontextmanager
async def serving(app: AsgiFrame, settings: Settings, port: int = 0) -> AsyncGenerator[int]:
    """The port where the application is served as `cmserver run` does it: the given one if it is free, else any."""
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError:
        listener = socket.create_server(("127.0.0.1", 0))
    server = make_server(app, settings)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await until("the server is started", lambda: server.started, task)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def exchange(port: int, *parts: bytes) -> bytes:
    """What the server answers to these bytes until it closes the connection."""
    return await exchange_until_refused(port, parts)


async def exchange_until_refused(port: int, parts: Iterable[bytes]) -> bytes:
    """Like `exchange`, for more than the server may be willing to take."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()

    sending = asyncio.create_task(send())
    try:
        return await asyncio.wait_for(reader.read(), ENOUGH_SECONDS)
    finally:
        sending.cancel()
        writer.close()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await sending


class Answer(msgspec.Struct, frozen=True):
    """One HTTP answer, taken apart."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse_answers(raw: bytes) -> list[Answer]:
    """The answers of a connection, one after the other. Each must say its length."""
    answers: list[Answer] = []
    while raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers["content-length"])
        assert len(rest) >= length, raw
        answers.append(Answer(int(first.split()[1]), headers, rest[:length]))
        raw = rest[length:]
    return answers
