"""`cmserver run`: database, migrations, API and worker in one process, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Coroutine, Generator, Mapping
from pathlib import Path
from typing import Literal, cast

import click
import structlog
import uvicorn
import uvloop
from psycopg import OperationalError
from psycopg.conninfo import conninfo_to_dict
from structlog.typing import FilteringBoundLogger

from cmserver import __version__
from cmserver.access import announce
from cmserver.access.bootstrap import bootstrap
from cmserver.access.limits.meter import Meter
from cmserver.access.model import MintedKey
from cmserver.base import credentials, logs
from cmserver.base.configuration import BadSetting, load
from cmserver.base.credentials import BadCredentials, Credentials
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, Unavailable
from cmserver.base.http.frame import Frame
from cmserver.base.live import Hub
from cmserver.base.migrate import connect_when_ready, installation_secret, migrate
from cmserver.base.postgres import Embedded, SetupError, make_data_dir
from cmserver.base.settings import Settings
from cmserver.cli import state
from cmserver.cli.exits import InUse
from cmserver.generation.bell import CHANNELS, Bell
from cmserver.observations.embedding.repository import ensure_vectors
from cmserver.ops.stream.feed import Feed
from cmserver.providers import registry
from cmserver.providers.model import Provider
from cmserver.worker import run_worker, watch

log: FilteringBoundLogger = structlog.get_logger(__name__)

Role = Literal["all", "api", "worker"]
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONTAINER_NAMES = ("KUBERNETES_SERVICE_HOST", "container")
"""How Docker, Podman, Kubernetes, and systemd's convention for others, tell that one is in a container."""


@click.command()
@click.option("--role", type=click.Choice(["all", "api", "worker"]), default="all", help="What this process does.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
@click.option("--host", help="Instead of CMSERVER_HOST.")
@click.option("--port", help="Instead of CMSERVER_PORT.")
@click.option("--background", is_flag=True, hidden=True, help="Said by `cmserver start`, which shows the first key itself.")
def run(role: Role, config_file: Path | None, host: str | None, port: str | None, *, background: bool) -> None:
    """Run the server in the foreground; Ctrl-C or SIGTERM drains and stops it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the loop has its own handlers
    with contextlib.suppress(KeyboardInterrupt):
        _run(role, config_file, host, port, background=background)


def _run(role: Role, config_file: Path | None, host: str | None, port: str | None, *, background: bool) -> None:
    given = {"CMSERVER_HOST": host, "CMSERVER_PORT": port}
    loaded = load({**os.environ, **{name: value for name, value in given.items() if value}}, config_file=config_file)
    settings = loaded.settings
    logs.configure(settings.log_format, settings.log_level)
    for warning in loaded.warnings:
        log.warning("setting.unknown", hint=warning)
    if role == "worker" and settings.database_url is None:
        raise BadSetting("A worker of its own needs CMSERVER_DATABASE_URL: nobody could send it anything otherwise.")
    refuse_guests_in_container(settings, os.environ)
    providers = _providers(settings, role)
    listener = _listener(settings) if role != "worker" else None
    embedded = _embedded(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_Process(settings, role, providers, listener, embedded, background=background).run())
        finally:
            # Before the runner waits for its threads: one of them may be waiting for a postgres that is just being restarted.
            if embedded is not None:
                embedded.stop()


def _providers(settings: Settings, role: Role) -> list[Provider]:
    """Only who works needs them, and their keys; that they are named rightly is looked at in any case."""
    try:
        if role == "api":
            registry.given(settings)
            return []
        return registry.chain(settings)
    except Invalid as error:
        raise BadSetting(f"CMSERVER_PROVIDER: {error}") from error


def refuse_guests_in_container(settings: Settings, environ: Mapping[str, str], root: Path = Path("/")) -> None:
    """In a container the loopback is not the machine's: what comes through a published port may look as if it came from here."""
    if settings.trust_loopback is None:
        return
    found = [f"/{name}" for name in _CONTAINER_FILES if (root / name).exists()]
    found += [name for name in _CONTAINER_NAMES if environ.get(name)]
    if found:
        raise BadSetting(
            f"CMSERVER_TRUST_LOOPBACK is set, but this is a container ({found[0]}), where it cannot be told who calls from this "
            "machine: let callers use keys instead."
        )


def _provider_line(settings: Settings) -> str:
    first, *others = registry.described(settings)
    if first.name == "offline":
        return "Provider: offline (rules, no model, no network). CMSERVER_PROVIDER chooses another."
    named = f"{first.name} ({first.model})" if first.model else first.name
    stand_ins = f"; while it is paused {', then '.join(one.name for one in others)}" if others else ""
    return f"Provider: {named}{stand_ins}"


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
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # handed on to each connection: a client that is stuck or gone holds nothing for long
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.stalled_client_seconds * 1000))
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        raise _in_use(settings, error) from error
    return listener


def _in_use(settings: Settings, error: OSError) -> InUse:
    return InUse(
        f"Cannot listen on {settings.host} port {settings.port} ({error.strerror}): another program may have the port. "
        "Set CMSERVER_HOST and CMSERVER_PORT."
    )


def first_key_lines(settings: Settings, key: str, kept: Path | None) -> str:
    """What is said once, at the very first start. `kept` is the file that holds the key as well."""
    if settings.bootstrap_key:
        return f"First start: made the team {settings.bootstrap_team!r}; its key is the one in CMSERVER_BOOTSTRAP_KEY."
    lines = [f"First start: made the team {settings.bootstrap_team!r} and its key, shown only now:", f"  {key}"]
    if kept:
        lines.append(f"The key is also in {kept} (only you can read it), so that commands on this machine just work.")
    lines.append("Next: cmserver connect claude-code (or codex, gemini, claude-mem), here or with --server on another machine.")
    return "\n".join(lines)


def _settle_garbage() -> None:
    """What is here at the start stays as long as the process: collections need not look at it, nor come so often (20 % of a
    batch's time went there).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


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
        role: Role,
        providers: list[Provider],
        listener: socket.socket | None,
        embedded: Embedded | None,
        *,
        background: bool,
    ) -> None:
        self._settings = settings
        self._role = role
        self._providers = providers
        self._listener = listener
        self._embedded = embedded
        self._background = background
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
            if not await self._before_stop(self._prepare(url)):
                return
            async with Db(
                url,
                size=self._settings.database_pool_size,
                idle_in_transaction_seconds=min(10.0, self._settings.lease_seconds),
            ) as db:
                await self._with_vectors(db)
                hub = Hub(url)
                bell = Bell(db, hub)
                background.append(asyncio.create_task(hub.listen([*CHANNELS, announce.CHANNEL, announce.NEWS])))
                await self._work(db, hub, bell, background)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def _before_stop(self, act: Coroutine[None, None, None]) -> bool:
        """Whether it has come to its end; False when it was given up because the process is to stop."""
        acting, stopping = asyncio.create_task(act), asyncio.create_task(self._stop.wait())
        await asyncio.wait({acting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if acting.done():
            await acting
            return True
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)
        return False

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

    async def _with_vectors(self, db: Db) -> None:
        """Where pgvector has come since the tables were made."""
        async with db.system() as conn:
            await ensure_vectors(conn)

    async def _work(self, db: Db, hub: Hub, bell: Bell, background: list[asyncio.Task[None]]) -> None:
        tasks: list[asyncio.Task[None]] = []
        if self._role != "api":
            tasks.append(asyncio.create_task(run_worker(self._settings, db, hub, bell, self._providers, self._stop)))
        elif self._settings.queue_warning_seconds > 0:
            tasks.append(asyncio.create_task(watch(self._settings, db, self._stop)))
        server: uvicorn.Server | None = None
        meter: Meter | None = None
        feed: Feed | None = None
        if self._listener is not None:
            key = await bootstrap(db, self._settings.bootstrap_team, self._settings.bootstrap_key)
            async with db.system_statement() as conn:
                secret = await installation_secret(conn)
            from cmserver.app import create_app  # noqa: PLC0415 - half a second, with MCP's SDK, that no other command should take

            app = create_app(self._settings, db, hub, bell, secret=secret)
            meter = cast("Meter", app.state.meter)
            feed = cast("Feed", app.state.feed)
            server = self._server(app)
            serving = asyncio.create_task(server.serve(sockets=[self._listener]))
            tasks.append(serving)
            while not server.started and not serving.done():  # noqa: ASYNC110 - a flag, no event
                await asyncio.sleep(0.005)
            if serving.done() and isinstance(error := serving.exception(), OSError):
                raise _in_use(self._settings, error)  # another one that had bound the port as well was first to listen
            self._announce(key)
            _settle_garbage()
        else:
            click.echo("The worker is running. Ctrl-C stops it.")
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({stopping, *tasks, *background}, return_when=asyncio.FIRST_COMPLETED)
            log.info("server.stopping")
            self._stop.set()
            db.hurry()
            if server is not None:
                server.should_exit = True
            if feed is not None:
                feed.close()  # the server waits for its open answers, and these would never end
            hub.close()  # nor would some that wait for observations
            await asyncio.gather(*tasks, *(task for task in background if task.done()))
            if meter is not None:
                await meter.flush()
        finally:
            stopping.cancel()
            state.withdraw(self._settings.data_dir)
        log.info("server.stopped")

    def _server(self, app: Frame) -> _Server:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http="httptools",
            ws="none",
            proxy_headers=False,
            server_header=False,
            # Agents think for longer than the usual five seconds; a call that is sent just when its connection is closed is lost.
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, int(self._settings.drain_seconds)),
        )
        return _Server(config)

    def _announce(self, key: MintedKey | None) -> None:
        settings = self._settings
        assert self._listener is not None
        host, port = self._listener.getsockname()[:2]
        shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104
        url = f"http://{shown}:{port}"
        kept = self._keep_files(url, key)
        log.info("server.started", url=url, role=self._role)
        click.echo(f"cmserver {__version__} is ready at {url}")
        where = "embedded PostgreSQL" if self._embedded else "your PostgreSQL (CMSERVER_DATABASE_URL)"
        click.echo(f"Data: {settings.data_dir if self._embedded else where}{f' ({where})' if self._embedded else ''}")
        click.echo(_provider_line(settings))
        if key is not None and not (self._background and kept):  # `cmserver start` shows it; a log is no place for it
            click.echo(first_key_lines(settings, key.text, kept))

    def _keep_files(self, url: str, key: MintedKey | None) -> Path | None:
        """Write down, for commands on this machine, where the server is, and the first key; the file that holds that."""
        settings = self._settings
        kept: Path | None = None
        try:
            make_data_dir(settings.data_dir)
            if key is not None:
                kept = credentials.write(settings.data_dir, Credentials(url=url, key=key.text, team=settings.bootstrap_team))
            else:
                known = credentials.read(settings.data_dir)
                if known is not None and known.url != url:
                    credentials.write(settings.data_dir, Credentials(url=url, key=known.key, team=known.team))
            if self._role != "worker":
                state.announce(settings.data_dir, url, self._role, background=self._background)
        except (OSError, SetupError, BadCredentials) as error:
            log.warning("credentials.not_written", folder=str(settings.data_dir), error=str(error))
        return kept
