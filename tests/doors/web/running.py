"""A real server with seeded content and a real browser, for the browser tests and for screenshots."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
from playwright.async_api import Browser, BrowserContext

from cmserver.access.limits.meter import Meter
from cmserver.app import create_app
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.http.server import make_server
from cmserver.base.migrate import installation_secret, migrate
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.doors.web.security import COOKIE
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.generation.job_notifier import CHANNELS, JobNotifier
from cmserver.ops.stream.feed import Feed
from tests.doors.web.seed import Seed, seed_server
from tests.timeouts import ENOUGH_SECONDS, until

_LISTEN = (
    "document.addEventListener('securitypolicyviolation', e => console.error('CSP: ' + e.violatedDirective + ' ' + e.blockedURI))"
)


def find_chromium() -> str:
    """The path of Debian's Chromium."""
    found = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
    assert found is not None, "Chromium is missing. As root on Debian: apt-get install chromium (bin/test --all does it)"
    return found


async def new_context(
    browser: Browser, url: str, token: str | None, *, theme: str = "light", javascript: bool = True
) -> BrowserContext:
    """A fresh profile of the browser, signed in by the token. CSP reports go to the console."""
    context = await browser.new_context(
        color_scheme=cast("Any", theme), viewport={"width": 1280, "height": 900}, java_script_enabled=javascript, base_url=url
    )
    context.set_default_timeout(ENOUGH_SECONDS * 1000)
    if token:
        await context.add_cookies([{"name": COOKIE, "value": token, "url": f"{url}/ui"}])
    if javascript:
        await context.add_init_script(_LISTEN)
    return context


@asynccontextmanager
async def serve(urls: DatabaseUrls, settings: Settings, *, hostile: bool = True) -> AsyncGenerator[tuple[str, Seed]]:
    """The address of a server on a migrated database, and what it was filled with."""
    async with Db(urls, size=8) as db:
        async with db.system() as conn:
            secret = await installation_secret(conn)
        notifications = NotificationListener(urls.session)
        listening = asyncio.create_task(notifications.listen(list(CHANNELS)))
        app = create_app(settings, db, notifications, JobNotifier(db, notifications), secret=secret)
        transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
        async with httpx.AsyncClient(transport=transport, base_url="http://cmserver") as api:
            seed = await seed_server(app, db, api, hostile=hostile)
        listener = socket.create_server(("127.0.0.1", 0))
        server = make_server(app, settings)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await until("the server is started", lambda: server.started, serving)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", seed
        finally:
            app.dependencies.get(Feed).close()
            server.should_exit = True
            notifications.close()
            await serving
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await app.dependencies.get(Meter).flush()


@asynccontextmanager
async def run_seeded_server(*, hostile: bool) -> AsyncGenerator[tuple[str, Seed]]:
    """The same with a PostgreSQL of its own."""
    with tempfile.TemporaryDirectory(prefix="cmserver-web-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # noqa: ASYNC240 - as root, PostgreSQL runs as another user, who must get through
        postgres = EmbeddedPostgres(folder / "data", durable=False)
        postgres.start()
        try:
            await migrate(postgres.urls.session)
            settings = Settings(data_dir=folder / "home", database_url=postgres.urls.owner, generation_debounce_seconds=0)
            async with serve(postgres.urls, settings, hostile=hostile) as running:
                yield running
        finally:
            postgres.stop()
