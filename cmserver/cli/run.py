"""`cmserver run`: database, migrations, API and worker in one process, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path

import click
import structlog
import uvicorn
import uvloop
from psycopg import OperationalError
from psycopg.conninfo import conninfo_to_dict
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from cmserver import __version__
from cmserver.access.bootstrap import bootstrap
from cmserver.access.model import MintedKey
from cmserver.app import create_app
from cmserver.base import credentials, logs
from cmserver.base.credentials import Credentials
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.live import Hub
from cmserver.base.migrate import connect_when_ready, installation_secret, migrate
from cmserver.base.postgres import Embedded, make_data_dir
from cmserver.base.settings import Settings, load
from cmserver.cli import state
from cmserver.cli.exits import InUse
from cmserver.generation.bell import CHANNELS, Bell
from cmserver.providers import registry
from cmserver.providers.model import Provider
from cmserver.worker import run_worker

log: FilteringBoundLogger = structlog.get_logger(__name__)


@click.command()
@click.option("--role", type=click.Choice(["all", "api", "worker"]), default="all", help="What this process does.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
@click.option("--host", help="Instead of CMSERVER_HOST.")
@click.option("--port", help="Instead of CMSERVER_PORT.")
def run(role: str, config_file: Path | None, host: str | None, port: str | None) -> None:
    """Run the server in the foreground; Ctrl-C or SIGTERM drains and stops it."""
    given = {"CMSERVER_HOST": host, "CMSERVER_PORT": port}
    loaded = load({**os.environ, **{name: value for name, value in given.items() if value}}, config_file=config_file)
    settings = loaded.settings
    logs.configure(settings.log_format, settings.log_level)
    for warning in loaded.warnings:
        log.warning("setting.unknown", hint=warning)
    provider = registry.load(settings.provider, model=settings.model, base_url=settings.base_url)
    listener = _listener(settings) if role != "worker" else None
    embedded = _embedded(settings)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Process(settings, role, provider, listener, embedded).run())
    finally:
        if embedded is not None:
            embedded.stop()


def _embedded(settings: Settings) -> Embedded | None:
    """Start the embedded PostgreSQL, here on the main thread: it dies with the thread that started it."""
    if settings.database_url:
        return None
    embedded = Embedded(settings.data_dir)
    embedded.start()
    return embedded


def _listener(settings: Settings) -> socket.socket:
    """Take the port before anything slow is done."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        raise InUse(
            f"Cannot listen on {settings.host} port {settings.port} ({error.strerror}): another program may have the port. "
            "Set CMSERVER_HOST and CMSERVER_PORT."
        ) from error
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: one SIGTERM stops API, worker and database in the right order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Process:
    """What runs in this process, and how it ends."""

    def __init__(
        self,
        settings: Settings,
        role: str,
        provider: Provider,
        listener: socket.socket | None,
        embedded: Embedded | None,
    ) -> None:
        self._settings = settings
        self._role = role
        self._provider = provider
        self._listener = listener
        self._embedded = embedded
        self._stop = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._stop.set)
        url = self._embedded.url if self._embedded else self._settings.database_url or ""
        background: list[asyncio.Task[None]] = []
        if self._embedded is not None:
            background.append(asyncio.create_task(self._embedded.keep_running()))
        try:
            await self._prepare(url)
            async with Db(
                url,
                size=self._settings.database_pool_size,
                idle_in_transaction_seconds=min(10.0, self._settings.lease_seconds),
            ) as db:
                hub = Hub(url)
                bell = Bell(db, hub)
                background.append(asyncio.create_task(hub.listen(CHANNELS)))
                await self._work(db, hub, bell)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def _prepare(self, url: str) -> None:
        try:
            await connect_when_ready(url, self._settings.database_wait_seconds)
        except OperationalError as error:
            where = conninfo_to_dict(url).get("host") or "its socket"
            reason = (str(error).strip().splitlines() or ["no answer"])[0]
            raise Unavailable(
                f"The database at {where} (CMSERVER_DATABASE_URL) cannot be reached: {reason}. "
                f"It was tried for {self._settings.database_wait_seconds:g} seconds (CMSERVER_DATABASE_WAIT_SECONDS)."
            ) from error
        await migrate(url)

    async def _work(self, db: Db, hub: Hub, bell: Bell) -> None:
        tasks: list[asyncio.Task[None]] = []
        if self._role != "api":
            tasks.append(asyncio.create_task(run_worker(self._settings, db, hub, bell, self._provider, self._stop)))
        server: uvicorn.Server | None = None
        if self._listener is not None:
            key = await bootstrap(db, self._settings.bootstrap_team, self._settings.bootstrap_key)
            async with db.system_statement() as conn:
                secret = await installation_secret(conn)
            server = self._server(create_app(self._settings, db, hub, bell, secret=secret))
            tasks.append(asyncio.create_task(server.serve(sockets=[self._listener])))
            while not server.started and not tasks[-1].done():
                await asyncio.sleep(0.005)  # noqa: ASYNC110 - uvicorn has a flag, no event
            self._announce(key)
        else:
            click.echo("The worker is running. Ctrl-C stops it.")
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            log.info("server.stopping")
            self._stop.set()
            if server is not None:
                server.should_exit = True
            await asyncio.gather(*tasks)
        finally:
            stopping.cancel()
            state.withdraw(self._settings.data_dir)
        log.info("server.stopped")

    def _server(self, app: ASGIApp) -> _Server:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http="httptools",
            ws="none",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, int(self._settings.drain_seconds)),
        )
        return _Server(config)

    def _announce(self, key: MintedKey | None) -> None:
        settings = self._settings
        assert self._listener is not None
        host, port = self._listener.getsockname()[:2]
        shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104
        url = f"http://{shown}:{port}"
        kept = self._keep_credentials(url, key)
        state.announce(settings.data_dir, url)
        log.info("server.started", url=url, role=self._role)
        click.echo(f"cmserver {__version__} is ready at {url}")
        where = "embedded PostgreSQL" if self._embedded else "your PostgreSQL (CMSERVER_DATABASE_URL)"
        click.echo(f"Data: {settings.data_dir if self._embedded else where}{f' ({where})' if self._embedded else ''}")
        if settings.provider == "offline":
            click.echo("Provider: offline (rules, no model, no network). CMSERVER_PROVIDER chooses another.")
        if key is not None:
            click.echo(f"First start: made the team {settings.bootstrap_team!r} and its key, shown only now:\n  {key.text}")
            if kept:
                click.echo(f"The key is also in {kept} (only you can read it), so that commands on this machine just work.")
            click.echo(
                f"Next: curl -H 'Authorization: Bearer {key.text}' {url}/v1/info\n"
                "      then send an event or attach a hook, as the README shows."
            )

    def _keep_credentials(self, url: str, key: MintedKey | None) -> Path | None:
        """Write the first key down for the CLI on this machine; later starts only keep the address up to date."""
        settings = self._settings
        try:
            make_data_dir(settings.data_dir)
            if key is not None:
                return credentials.write(settings.data_dir, Credentials(url=url, key=key.text, team=settings.bootstrap_team))
            known = credentials.read(settings.data_dir)
            if known is not None and known.url != url:
                credentials.write(settings.data_dir, Credentials(url=url, key=known.key, team=known.team))
        except OSError as error:
            log.warning("credentials.not_written", folder=str(settings.data_dir), error=error.strerror)
        return None
