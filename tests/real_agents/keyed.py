"""A door in front of a server that adds a key to each request, for programs that cannot send one.

All else passes byte for byte, so that what is tested is the server: names, origins, and headers as they were written.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import httpx
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

_LINE_BYTES = 65_536


@asynccontextmanager
async def keyed(url: str, key: str) -> AsyncGenerator[str]:
    """The address of the door to the server at `url`. A connection is good for one request, as the server's answer says."""
    behind = httpx.URL(url)
    added = f"\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n".encode()

    async def pass_on(client: SocketStream) -> None:
        with suppress(anyio.IncompleteRead):  # whoever came had nothing to ask
            async with client, await anyio.connect_tcp(behind.host, behind.port or 80) as server:
                asked = BufferedByteReceiveStream(client)
                await server.send(await asked.receive_until(b"\r\n", _LINE_BYTES) + added)
                async with anyio.create_task_group() as both:
                    both.start_soon(_pump, asked, server)
                    await _pump(server, client)
                    both.cancel_scope.cancel()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as door:
        door.start_soon(listener.serve, pass_on)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        door.cancel_scope.cancel()


async def _pump(received: ByteReceiveStream, sent: ByteSendStream) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for chunk in received:
            await sent.send(chunk)
