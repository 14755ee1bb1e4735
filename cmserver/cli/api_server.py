"""The HTTP server of a process. Imported only where there is one: it takes half a second, and the worker needs none of it."""

from __future__ import annotations

import asyncio
import socket

from cmserver.access.limits.meter import Meter
from cmserver.app import create_app
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.http.server import make_server
from cmserver.base.migrate import installation_secret
from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings
from cmserver.cli.process import DatabaseConnections, freeze_garbage
from cmserver.generation.queue_monitor import QueueMonitor
from cmserver.ops.stream.feed import Feed


async def open_api_server(
    settings: Settings, connections: DatabaseConnections, listener: socket.socket, monitor: QueueMonitor, start: ServerStart
) -> ApiServer:
    """The HTTP server of this process, not started yet."""
    async with connections.db.system_statement() as conn:
        secret = await installation_secret(conn)
    db, notifications = connections.db, connections.notifications
    app = create_app(settings, db, notifications, connections.notifier, secret=secret, monitor=monitor, start=start)
    return ApiServer(app, settings, listener)


class ApiServer:
    """Serves the app on the listener."""

    def __init__(self, app: AsgiFrame, settings: Settings, listener: socket.socket) -> None:
        self._listener = listener
        self._meter = app.dependencies.get(Meter)
        self._feed = app.dependencies.get(Feed)
        self._server = make_server(app, settings)

    async def start(self) -> asyncio.Task[None]:
        """Return the task that serves, once the server accepts requests. OSError when the port is taken after all."""
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        while not self._server.started and not serving.done():  # noqa: ASYNC110 - a flag, no event
            await asyncio.sleep(0.005)
        if serving.done():
            serving.result()
        freeze_garbage()
        return serving

    def stop(self) -> None:
        """Accept nothing more, and end open streams: the server waits for open responses, and streams never end."""
        self._server.should_exit = True
        self._feed.close()

    async def flush(self) -> None:
        """Write down what was counted."""
        await self._meter.flush()
