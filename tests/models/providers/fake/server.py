"""An HTTP server in the test's own process that plays answers and faults of model providers, byte by byte."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from queue import Queue
from typing import cast

import msgspec

from tests.timeouts import ENOUGH_SECONDS


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return cast("dict[str, object]", json.loads(self.body))


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered. `stop_after` cuts the connection after so many bytes of the body, `stall_after` falls silent there."""

    status: int = 200
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    body: bytes = b""
    stop_after: int | None = None
    stall_after: int | None = None


def json_reply(value: object, *, status: int = 200, **headers: str) -> Reply:
    """Header names with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers={"content-type": "application/json", **named}, body=json.dumps(value).encode())


Play = Callable[[Asked], Reply | Awaitable[Reply]]


class FakeProvider:
    """`url` is where it listens; `asked` is what it was sent. It plays `replies` in order, then `otherwise`."""

    def __init__(self, otherwise: Play | None = None) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.replies: list[Reply] = []
        self.otherwise = otherwise
        self.released = asyncio.Event()
        """Ends what stalls."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                self.asked.append(request)
                if not await self._answer(request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Asked, writer: asyncio.StreamWriter) -> bool:
        reply = await self._reply(request)
        head = {"content-length": str(len(reply.body)), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} Played", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        end = reply.stop_after if reply.stop_after is not None else reply.stall_after
        writer.write("\r\n".join(lines).encode() + reply.body[:end])
        await writer.drain()
        if reply.stall_after is not None:
            await self.released.wait()
        return end is None

    async def _reply(self, request: Asked) -> Reply:
        if self.replies:
            return self.replies.pop(0)
        if self.otherwise is None:
            return json_reply({"error": {"message": "the test has nothing more to say"}}, status=500)
        played = self.otherwise(request)
        return played if isinstance(played, Reply) else await played


@asynccontextmanager
async def fake_provider(otherwise: Play | None = None) -> AsyncGenerator[FakeProvider]:
    """Listens on a free port of the loopback while it lasts."""
    fake = FakeProvider(otherwise)
    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(fake.serve(reader, writer))
        serving.add(task)
        task.add_done_callback(serving.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=2**24)
    host, port = server.sockets[0].getsockname()[:2]
    fake.url = f"http://{host}:{port}"
    try:
        yield fake
    finally:
        fake.released.set()
        server.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


@contextmanager
def fake_in_a_thread(otherwise: Play) -> Generator[FakeProvider]:
    """For those who wait for a program that waits for its provider."""
    ready: Queue[tuple[FakeProvider, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def serve() -> None:
        over = asyncio.Event()
        async with fake_provider(otherwise) as fake:
            ready.put((fake, asyncio.get_running_loop(), over))
            await over.wait()

    serving = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    serving.start()
    fake, loop, over = ready.get(timeout=ENOUGH_SECONDS)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(over.set)
        serving.join()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readline()).strip() or b"0", 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method=method, path=path, headers=headers, body=body)
