"""Hundreds of readers of the live stream on one server process, and how long it takes until each of them has heard."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from tests.timeouts import scaled

CONNECT_SECONDS = 60


def allow_connections(count: int) -> None:
    """This process, and what it starts from now on, may have so many sockets open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count + 200:
        wanted = count + 200
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(hard, wanted), hard))


def request(key: str, target: str = "/v1/stream") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: cmserver\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


@asynccontextmanager
async def reading(host: str, port: int, keys: Sequence[str]) -> AsyncGenerator[list[asyncio.StreamReader]]:
    """One open stream for each of the keys, past its answer's head and first block."""
    slots = asyncio.Semaphore(50)
    writers: list[asyncio.StreamWriter] = []

    async def connect(key: str) -> asyncio.StreamReader:
        async with slots, asyncio.timeout(scaled(CONNECT_SECONDS)):
            reader, writer = await asyncio.open_connection(host, port)
            writers.append(writer)
            writer.write(request(key))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head + await reader.read(1000)
            await reader.readuntil(b"retry: ")
            return reader

    try:
        yield await asyncio.gather(*(connect(key) for key in keys))
    finally:
        for writer in writers:
            writer.transport.abort()


async def seconds_until_heard(
    readers: Sequence[asyncio.StreamReader], happen: Callable[[], Awaitable[str]], patience_seconds: float
) -> list[float]:
    """For each reader, the seconds from the answer to `happen` until a text that it names has come."""
    text = (await happen()).encode()
    began = time.monotonic()

    async def hear(reader: asyncio.StreamReader) -> float:
        async with asyncio.timeout(patience_seconds):
            await reader.readuntil(text)
            return time.monotonic() - began

    return await asyncio.gather(*(hear(reader) for reader in readers))
