"""`cmserver run`: runs the database, migrations, the API and the worker until a signal stops them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import msgspec
import structlog
import uvloop
from psycopg import OperationalError
from psycopg.conninfo import conninfo_to_dict
from structlog.typing import FilteringBoundLogger

from cmserver import __version__
from cmserver.base import logs
from cmserver.base.configuration import CONFIG_NAME, BadSetting, LoadedSettings, load
from cmserver.base.credentials import BadCredentials
from cmserver.base.db import DatabaseUrls, Db, check_pooling, prepare_tenant
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.errors import Invalid, Unavailable
from cmserver.base.metrics import counting_together
from cmserver.base.migrate import connect_when_ready, installation_secret, migrate
from cmserver.base.process import DOCKER_FILE, container_signs, return_freed_memory
from cmserver.base.service_manager import READY, STOPPING, keep_watchdog_quiet, notify_service_manager, watchdog_seconds
from cmserver.base.settings import Settings
from cmserver.base.waiting import wait_any
from cmserver.cli import state
from cmserver.cli.child import ChildOrder
from cmserver.cli.children import keep_child_running
from cmserver.cli.config import config_file_option
from cmserver.cli.database import own_database
from cmserver.cli.exit_codes import ResourceInUse
from cmserver.cli.first_key import FirstKey, echo_first_key, ensure_first_key, make_owner_link, shows_key, update_address
from cmserver.cli.process import DatabaseConnections, divide_pool, open_connections, stop_on_signals, work
from cmserver.cli.provider_offer import offer_provider
from cmserver.embedded.files import SetupError, make_data_dir
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.generation.queue_monitor import QueueMonitor
from cmserver.observations.embedding.repository import ensure_vectors
from cmserver.ops.backup.journal import begin_journal
from cmserver.ops.backup.restore import check_restore_ended
from cmserver.providers import registry
from cmserver.providers.http_client import MissingKey
from cmserver.providers.model import Provider

if TYPE_CHECKING:
    from cmserver.cli.api_server import ApiServer

log: FilteringBoundLogger = structlog.get_logger(__name__)

Role = Literal["all", "api", "worker"]


@click.command()
@click.option("--role", type=click.Choice(["all", "api", "worker"]), default="all", show_default=True, help="What runs here.")
@config_file_option
@click.option("--host", help="Instead of CMSERVER_HOST.")
@click.option("--port", help="Instead of CMSERVER_PORT.")
@click.option("--api-processes", help="Instead of CMSERVER_API_PROCESSES.")
@click.option("--background", is_flag=True, hidden=True, help="Set by `cmserver start`.")
def run(
    role: Role, config_file: Path | None, host: str | None, port: str | None, api_processes: str | None, *, background: bool
) -> None:
    """Run the server in the foreground; Ctrl-C or SIGTERM drains and stops it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the loop has its own handlers
    with contextlib.suppress(KeyboardInterrupt):
        options = {"CMSERVER_HOST": host, "CMSERVER_PORT": port, "CMSERVER_API_PROCESSES": api_processes}
        _run(role, config_file, options, background=background)


def _run(role: Role, config_file: Path | None, options: Mapping[str, str | None], *, background: bool) -> None:
    environ = {**os.environ, **{name: value for name, value in options.items() if value}}
    loaded = load(environ, config_file=config_file)
    settings = loaded.settings
    logs.configure(settings.log_format, settings.log_level)
    return_freed_memory()
    for warning in loaded.warnings:
        log.warning("setting.unknown", hint=warning)
    for variable, setting in loaded.translated.items():
        log.info("setting.translated", variable=variable, setting=setting)
    if role == "worker" and settings.database_url is None:
        raise BadSetting("--role worker needs CMSERVER_DATABASE_URL: a separate worker shares its database with an API process.")
    refuse_trusted_loopback_in_container(settings, os.environ)
    listener = _bind_listener(settings) if role != "worker" else None
    is_in_use = settings.database_url is None and state.running(settings.data_dir) is not None  # the start will say so
    if role == "all" and not is_in_use and offer_provider(loaded):
        loaded = load(environ, config_file=config_file)
    settings, providers = load_providers(loaded, role)
    embedded = _start_embedded(settings)
    with counting_together(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_Process(settings, role, providers, listener, embedded, background=background).run())
        finally:
            # Before the runner waits for its threads: one may wait for a postgres that is being restarted.
            if embedded is not None:
                embedded.stop()


def load_providers(loaded: LoadedSettings, role: Role) -> tuple[Settings, list[Provider]]:
    """Return the settings in force and the chain of providers; empty where another process calls them, and they are only checked.

    A provider that the data folder's own file names, and whose key is missing, is replaced by `offline`: the file is read by each
    start, the key may be in one shell only. Raises BadSetting for any other provider that cannot be used.
    """
    settings = loaded.settings
    source = loaded.sources["provider"]
    try:
        if role == "api":
            registry.provider_settings(settings)
            return settings, []
        if role == "all":
            registry.check(settings)
            return settings, []
        return settings, registry.chain(settings)
    except Invalid as error:
        if not isinstance(error, MissingKey) or source != str(settings.data_dir / CONFIG_NAME):
            name = "CMSERVER_PROVIDER" if source == "default" or source.startswith("environment") else f"provider in {source}"
            raise BadSetting(f"{name}: {error}") from error
        log.warning(
            "provider.key_missing",
            provider=settings.provider,
            file=source,
            setting=error.setting,
            hint=f"{source} names the provider {settings.provider}, but {error.setting} is not set: rules word the memory. "
            f"Set {error.setting} or {error.setting}_FILE where the server starts, or change the file.",
        )
    settings = _without_model(loaded)
    return settings, registry.chain(settings) if role == "worker" else []


def _without_model(loaded: LoadedSettings) -> Settings:
    """The settings with the provider `offline`, and what goes with it."""
    settings = msgspec.structs.replace(loaded.settings, provider="offline", model=None, base_url=None)
    if loaded.sources["generation_debounce_seconds"] == "default":
        default = Settings(data_dir=settings.data_dir).generation_debounce_seconds
        settings = msgspec.structs.replace(settings, generation_debounce_seconds=default)
    return settings


def refuse_trusted_loopback_in_container(settings: Settings, environ: Mapping[str, str], root: Path = Path("/")) -> None:
    """A container's loopback is not the machine's: requests through a published port, or a pod's proxy, may look local.

    With Docker they come from its network: a server that listens on loopback, as it must to have guests, never gets them.
    """
    if settings.trust_loopback is None:
        return
    signs = [sign for sign in container_signs(environ, root) if sign != DOCKER_FILE]
    if (sign := next(iter(signs), None)) is not None:
        raise BadSetting(
            f"CMSERVER_TRUST_LOOPBACK does not work in a container ({sign}): local and remote callers look alike. Use keys."
        )


def _describe_providers(settings: Settings) -> str:
    first, *others = registry.chain_models(settings)
    if first.name == "offline":
        return "Provider: offline (rules, no model, no network). CMSERVER_PROVIDER chooses another."
    name = f"{first.name} ({first.model})" if first.model else first.name
    fallbacks = f"; while it is paused {', then '.join(provider.name for provider in others)}" if others else ""
    return f"Provider: {name}{fallbacks}"


def _start_embedded(settings: Settings) -> EmbeddedPostgres | None:
    """Start the embedded PostgreSQL unless a database is set. On the main thread: it dies with the thread that started it."""
    if settings.database_url:
        return None
    embedded = EmbeddedPostgres(settings.data_dir)
    embedded.start()
    return embedded


def _bind_listener(settings: Settings) -> socket.socket:
    """Bind the port; ResourceInUse when it is taken. Called before the slow steps of the start."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # inherited by each connection: a stuck client holds nothing for long
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.stalled_client_seconds * 1000))
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        raise _port_error(settings, error) from error
    return listener


def _port_error(settings: Settings, error: OSError) -> ResourceInUse:
    return ResourceInUse(
        f"Cannot listen on {settings.host} port {settings.port} ({error.strerror}): is the port in use? "
        "Set CMSERVER_HOST and CMSERVER_PORT."
    )


class _Process:
    """The tasks of this process, from start to shutdown."""

    def __init__(
        self,
        settings: Settings,
        role: Role,
        providers: list[Provider],
        listener: socket.socket | None,
        embedded: EmbeddedPostgres | None,
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
        stop_on_signals(self._stop)
        urls = self._embedded.urls if self._embedded else own_database(self._settings)
        assert urls is not None
        supervising = None if self._embedded is None else asyncio.create_task(self._embedded.keep_running())
        try:
            if not await self._finish_before_stop(self._prepare(urls)):
                return
            pool_size = divide_pool(self._settings) if self._listener else None
            async with open_connections(
                self._settings, urls, is_embedded=self._embedded is not None, pool_size=pool_size
            ) as connections:
                async with connections.db.system() as conn:
                    await ensure_vectors(conn)  # pgvector may have been installed since the tables were made
                await begin_journal(connections.db, ErasureJournal(self._settings.backup_folder))
                background = [connections.listening, *([supervising] if supervising else [])]
                if watchdog_seconds() is not None:
                    background.append(asyncio.create_task(keep_watchdog_quiet()))
                await self._work(urls, connections, background)
        finally:
            if supervising is not None:
                supervising.cancel()
                await asyncio.gather(supervising, return_exceptions=True)

    async def _finish_before_stop(self, action: Coroutine[None, None, None]) -> bool:
        """Run the action. Returns False when a signal to stop cancelled it."""
        task = asyncio.create_task(action)
        await wait_any(self._stop, task)
        if task.done():
            await task
            return True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False

    async def _prepare(self, urls: DatabaseUrls) -> None:
        urls_by_setting = {
            "CMSERVER_DATABASE_URL": urls.owner,
            "CMSERVER_DATABASE_DIRECT_URL": urls.direct,
            "CMSERVER_DATABASE_TENANT_URL": urls.tenant,
        }
        for setting, url in urls_by_setting.items():
            if url is not None:
                await self._wait_for_database(setting, url)
        await check_pooling(urls)
        await check_restore_ended(urls.session)
        await migrate(urls.session)
        await prepare_tenant(urls)

    async def _wait_for_database(self, setting: str, url: str) -> None:
        try:
            await connect_when_ready(url, self._settings.database_wait_seconds)
        except OperationalError as error:
            host = conninfo_to_dict(url).get("host") or "its socket"
            reason = (str(error).strip().splitlines() or ["no answer"])[0]
            raise Unavailable(
                f"The database at {host} ({setting}) cannot be reached: {reason}. "
                f"Gave up after {self._settings.database_wait_seconds:g} seconds (CMSERVER_DATABASE_WAIT_SECONDS)."
            ) from error

    async def _work(self, urls: DatabaseUrls, connections: DatabaseConnections, background: list[asyncio.Task[None]]) -> None:
        settings, db, stop = self._settings, connections.db, self._stop
        monitor = QueueMonitor(db, settings)
        tasks = [asyncio.create_task(monitor.run(stop))]
        server: ApiServer | None = None
        if self._listener is None:
            click.echo("The worker is running. Ctrl-C stops it.")
            tasks.append(asyncio.create_task(work(settings, connections, self._providers, stop)))
        else:
            first_key = await ensure_first_key(db, settings, self._url, embedded=self._embedded is not None)
            async with db.system_statement() as conn:
                secret = await installation_secret(conn)
            tasks += [asyncio.create_task(keep_child_running(order, stop)) for order in self._child_orders(urls)]
            from cmserver.cli.api_server import ApiServer  # noqa: PLC0415 - half a second, which no other command should take

            server = ApiServer(settings, connections, self._listener, secret, monitor)
            try:
                tasks.append(await server.start())
            except OSError as error:
                raise _port_error(settings, error) from error  # another process had bound the port too, and listened first
            await self._announce(db, first_key)
        notify_service_manager(READY)
        try:
            await wait_any(stop, *tasks, *background)
            notify_service_manager(STOPPING)
            log.info("server.stopping")
            stop.set()
            db.hurry()
            if server is not None:
                server.stop()
            connections.notifications.close()  # requests that wait for observations do not end by themselves
            await asyncio.gather(*tasks, *(task for task in background if task.done()))
            if server is not None:
                await server.flush()
        finally:
            state.withdraw(settings.data_dir)
        log.info("server.stopped")

    def _child_orders(self, urls: DatabaseUrls) -> list[ChildOrder]:
        """The processes beside this one: the worker, and what `api_processes` asks for."""
        assert self._listener is not None
        listener = self._listener.fileno()
        roles: list[Literal["api", "worker"]] = ["api" for _ in range(self._settings.api_processes - 1)]
        if self._role == "all":
            roles.insert(0, "worker")
        return [
            ChildOrder(
                role=role,
                settings=self._settings,
                urls=urls,
                is_embedded=self._embedded is not None,
                listener=listener if role == "api" else None,
            )
            for role in roles
        ]

    @property
    def _url(self) -> str:
        """The URL of this process for clients on this machine."""
        assert self._listener is not None
        host, port = self._listener.getsockname()[:2]
        address = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104
        return f"http://{address}:{port}"

    async def _announce(self, db: Db, first_key: FirstKey | None) -> None:
        """Report that the server is ready: on standard output, in the log, and in files for commands on this machine."""
        settings, url = self._settings, self._url
        try:
            make_data_dir(settings.data_dir)
            await update_address(db, settings, url)
            state.announce(settings.data_dir, url, self._role, background=self._background)
        except (OSError, SetupError, BadCredentials) as error:
            log.warning("credentials.not_written", folder=str(settings.data_dir), error=str(error))
        log.info("server.started", url=url, role=self._role)
        click.echo(f"cmserver {__version__} is ready at {url}")
        embedded = f"{settings.data_dir} (embedded PostgreSQL)"
        click.echo(f"Data: {embedded if self._embedded else 'your PostgreSQL (CMSERVER_DATABASE_URL)'}")
        click.echo(_describe_providers(settings))
        if first_key is not None:
            link = await make_owner_link(db, settings, url) if shows_key() else None
            echo_first_key(settings, msgspec.structs.replace(first_key, owner_link=link))
