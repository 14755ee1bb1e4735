"""A TCP proxy before PostgreSQL whose connections can be cut, paused, slowed, half closed, or made silent for good."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from random import Random


class _Link:
    """A client's connection and the one to PostgreSQL that it is joined to."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.is_silent = False
        """What comes is swallowed, and nobody is told that the connection is of no use."""
        self.is_held = False
        """The client is not told that PostgreSQL has closed its side."""

    def cut(self) -> None:
        for writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            if isinstance(sock, socket.socket) or hasattr(sock, "setsockopt"):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no orderly end
            writer.transport.abort()


class Proxy:
    """Listens on a port of the loopback, in a thread of its own, and passes bytes on to a Unix socket."""

    def __init__(self, upstream: Path, seed: int) -> None:
        self._upstream = upstream
        self._random = Random(seed)
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._longest_delay = 0.0
        self._refuses = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- faults

    def cut(self) -> None:
        """Reset every connection."""
        self._run(lambda: [link.cut() for link in self._links])

    def refuse(self, refuses: bool) -> None:
        """Reset every new connection at once."""

        def act() -> None:
            self._refuses = refuses

        self._run(act)

    def pause(self, paused: bool) -> None:
        """Keep what comes until the pause ends."""
        self._run(self._flows.clear if paused else self._flows.set)

    def slow(self, longest_delay: float) -> None:
        """Delay each piece by up to so many seconds."""

        def act() -> None:
            self._longest_delay = longest_delay

        self._run(act)

    def half_close(self) -> None:
        """End the direction to PostgreSQL, which closes; clients hear nothing of it until `release`."""

        def act() -> None:
            for link in self._links:
                link.is_held = True
                if link.server.can_write_eof() and not link.server.is_closing():
                    link.server.write_eof()

        self._run(act)

    def release(self) -> None:
        """Cut the connections that `half_close` left open."""
        self._run(lambda: [link.cut() for link in self._links if link.is_held])

    def cut_silent(self) -> None:
        """Cut what `silence` made useless, so that PostgreSQL has room for other connections."""
        self._run(lambda: [link.cut() for link in self._links if link.is_silent])

    def silence(self) -> None:
        """Make the connections of the moment useless for good, without telling either side, as a lost route does."""

        def act() -> None:
            for link in self._links:
                link.is_silent = True

        self._run(act)

    # -- passing on

    def _run(self, act: Callable[[], object]) -> None:
        done: Future[None] = Future()

        def run() -> None:
            try:
                act()
            finally:
                done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._refuses:
                raise ConnectionError
            from_server, to_server = await asyncio.open_unix_connection(str(self._upstream))
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, to_server)
        self._links.add(link)
        pumps = [
            asyncio.create_task(self._pump(link, reader, to_server)),
            asyncio.create_task(self._pump(link, from_server, writer)),
        ]
        self._tasks.update(pumps)
        await asyncio.gather(*pumps, return_exceptions=True)
        self._tasks.difference_update(pumps)
        self._links.discard(link)

    async def _pump(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flows.wait()
                if self._longest_delay:
                    await asyncio.sleep(self._random.uniform(0, self._longest_delay))
                if not link.is_silent:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            if not link.is_silent and not (link.is_held and writer is link.client):
                writer.close()
