"""`cmserver run`: runs the database, migrations, the API and the worker until a signal stops them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import click
import msgspec
import uvloop
from psycopg import OperationalError
from psycopg.conninfo import conninfo_to_dict

from cmserver import __version__
from cmserver.base import logs
from cmserver.base.configuration import CONFIG_NAME, BadSetting, LoadedSettings, load
from cmserver.base.credentials import BadCredentials
from cmserver.base.db import DatabaseUrls, Db, check_pooling, prepare_tenant
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.errors import Invalid, Unavailable
from cmserver.base.log_files import LOG_NAME, keep_logs_small
from cmserver.base.logs import get_logger
from cmserver.base.metrics import counting_together
from cmserver.base.migrate import connect_when_ready, migrate
from cmserver.base.process import DOCKER_FILE, container_sign, container_signs, return_freed_memory
from cmserver.base.server_start import ServerStart
from cmserver.base.service_manager import READY, STOPPING, keep_watchdog_quiet, notify_service_manager
from cmserver.base.settings import Settings
from cmserver.base.tracing import exporting_traces, is_exported
from cmserver.base.waiting import run_beside, run_unless_stopped
from cmserver.cli import state
from cmserver.cli.child import ChildOrder, reload_by
from cmserver.cli.children import ForkedChild, fork_children, keep_child_running
from cmserver.cli.config import config_file_option
from cmserver.cli.database import own_database
from cmserver.cli.exit_codes import ResourceInUse
from cmserver.cli.first_key import FirstKey, echo_first_key, ensure_first_key, make_owner_link, shows_key, update_address
from cmserver.cli.process import ServerSignals, divide_pool, open_connections, run_jobs, run_until_stopped, stop_on_signals
from cmserver.cli.provider_offer import offer_provider
from cmserver.embedded.files import SetupError, list_clusters, make_data_dir
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.embeddings.repository import ensure_vectors
from cmserver.generation.queue_monitor import QueueMonitor
from cmserver.models.providers import registry
from cmserver.models.providers.http_client import MissingKey
from cmserver.models.providers.model import ProviderChain
from cmserver.ops.backup.journal import begin_journal
from cmserver.ops.backup.restore import check_restore_ended
from cmserver.ops.provider_choice.choice import MODEL_SETTINGS

log = get_logger(__name__)

_STALLED_MILLISECONDS = 30_000
"""A client that takes in nothing for so long is gone, or as good as gone; a laptop that changes its network is back before."""

Role = Literal["all", "api", "worker"]


@click.command()
@click.option("--role", type=click.Choice(["all", "api", "worker"]), default="all", show_default=True, help="What runs here.")
@config_file_option
@click.option("--host", help="Instead of CMSERVER_HOST.")
@click.option("--port", help="Instead of CMSERVER_PORT. A worker listens only with it: for /livez, /healthz and /metrics.")
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
    is_watched = is_first_on_terminal(loaded)
    if is_watched:
        loaded = _without_details(loaded)
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
    if role == "worker":
        status_listener = _bind_listener(settings) if options.get("CMSERVER_PORT") else None
        settings, providers = load_providers(loaded, role)
        with exporting_traces(), counting_together(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work(settings, providers, status_listener))
        return
    listener = _bind_listener(settings)
    is_in_use = settings.database_url is None and state.running(settings.data_dir) is not None  # the start will say so
    if role == "all" and not is_in_use and offer_provider(loaded):
        loaded = load(environ, config_file=config_file)
        loaded = _without_details(loaded) if is_watched else loaded
    settings, _ = load_providers(loaded, role)
    start = ServerStart(environ=environ, config_file=config_file, reload=reload_by(os.getpid()) if role == "all" else None)
    with counting_together():
        forked = fork_children(listener, role, settings.api_processes - (role == "api"))
        embedded = _start_embedded(settings)
        with exporting_traces(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(serve(settings, role, listener, embedded, forked, start, background=background))
            finally:
                # Before the runner waits for its threads: one may wait for a postgres that is being restarted.
                if embedded is not None:
                    embedded.stop()


def is_first_on_terminal(loaded: LoadedSettings) -> bool:
    """Whether somebody sees the first start of this data folder: what it says stands between no lines of a log then.

    In a container what is on the terminal is the log, which others read.
    """
    is_new = loaded.settings.database_url is None and not list_clusters(loaded.settings.data_dir)
    return is_new and loaded.sources["log_level"] == "default" and sys.stderr.isatty() and container_sign(os.environ) is None


def _without_details(loaded: LoadedSettings) -> LoadedSettings:
    """The settings with a log of what needs somebody only."""
    return msgspec.structs.replace(loaded, settings=msgspec.structs.replace(loaded.settings, log_level="warning"))


async def serve(
    settings: Settings,
    role: Literal["all", "api"],
    listener: socket.socket,
    embedded: EmbeddedPostgres | None,
    forked: Sequence[ForkedChild],
    start: ServerStart,
    *,
    background: bool,
) -> None:
    """Answer requests until a signal, with the processes beside this one: the others of the API, and with `all` the worker.

    After RELOAD_SIGNAL all but the database begins anew. Requests wait meanwhile, as the listener stays; a job goes on later.
    """
    signals = ServerSignals()
    urls = embedded.urls if embedded else own_database(settings)
    assert urls is not None
    logs_kept = keep_logs_small([settings.data_dir / LOG_NAME, *([embedded.log_file] if embedded else [])])
    async with (
        run_beside(keep_watchdog_quiet(), logs_kept),
        run_beside(*([embedded.keep_running()] if embedded else [])) as guards,
    ):
        if await run_unless_stopped(signals.stop, _prepare_database(settings, urls)) is None:
            return
        try:
            await _serve_once(settings, role, urls, listener, forked, start, signals, guards, announce=True, background=background)
            while signals.begin_anew():
                settings, start = reload_settings(settings, role, start)
                await _serve_once(settings, role, urls, listener, (), start, signals, guards, background=background)
        finally:
            state.withdraw(settings.data_dir)
        log.info("server.stopped")


async def _serve_once(
    settings: Settings,
    role: Literal["all", "api"],
    urls: DatabaseUrls,
    listener: socket.socket,
    forked: Sequence[ForkedChild],
    start: ServerStart,
    signals: ServerSignals,
    guards: Sequence[asyncio.Task[None]],
    *,
    background: bool,
    announce: bool = False,
) -> None:
    """Serve until a signal, or until a task ends. The database runs on."""
    stop = signals.stop
    is_embedded = settings.database_url is None
    async with open_connections(settings, urls, is_embedded=is_embedded, pool_size=divide_pool(settings)) as connections:
        await _begin(settings, connections.db)
        url = _local_url(listener)
        first_key = await ensure_first_key(connections.db, settings, url, embedded=is_embedded) if announce else None
        children = _child_orders(settings, role, urls, listener, start, is_embedded=is_embedded)
        monitor = QueueMonitor(connections.db)
        tasks = [asyncio.create_task(keep_child_running(child, stop, first)) for child, first in zip_longest(children, forked)]
        tasks.append(asyncio.create_task(monitor.run(stop, connections.notifications)))
        tasks += _start_metrics_export(connections.db, stop)
        from cmserver.cli.api_server import open_api_server  # noqa: PLC0415 - half a second, which no other command should take

        # The server closes the socket that it is given; connections wait in the other one until it has begun anew.
        server = await open_api_server(settings, connections, listener.dup(), monitor, start)
        try:
            tasks.append(await server.start())
        except OSError as error:
            raise _port_error(settings, error) from error  # another process had bound the port too, and listened first
        if announce:
            await _announce(settings, connections.db, url, role, first_key, is_embedded=is_embedded, background=background)
        await run_until_stopped(connections, stop, *tasks, *guards)
        if not signals.is_reloading:
            _report_stopping()
            listener.close()  # else the kernel would take connections until the process has ended, which nobody answers
        server.stop()
        await asyncio.gather(*tasks, *(guard for guard in (connections.listening, *guards) if guard.done()))
        await server.flush()


def reload_settings(settings: Settings, role: Role, start: ServerStart) -> tuple[Settings, ServerStart]:
    """The settings with those of the model as they are now; as they were, if these cannot be used, and the start says why."""
    try:
        loaded = load(start.environ, config_file=start.config_file)
        changed = {name: getattr(loaded.settings, name) for name in MODEL_SETTINGS}
        settings, _ = load_providers(msgspec.structs.replace(loaded, settings=msgspec.structs.replace(settings, **changed)), role)
    except Exception as error:  # noqa: BLE001 - a provider of one's own raises what it likes; the server goes on
        reason = str(error) if isinstance(error, BadSetting) else f"{type(error).__name__}: {error}"
        log.error("settings.not_reloaded", error=reason)  # noqa: TRY400 - a sentence for the operator
        return settings, msgspec.structs.replace(start, not_reloaded=reason)
    log.info("settings.reloaded", provider=settings.provider, model=settings.model)
    return settings, msgspec.structs.replace(start, not_reloaded=None)


async def work(settings: Settings, providers: ProviderChain, status_listener: socket.socket | None) -> None:
    """Work on jobs until a signal, on the database that the settings name; with a listener, tell there how it goes."""
    stop = stop_on_signals()
    urls = own_database(settings)
    assert urls is not None
    async with run_beside(keep_watchdog_quiet()):
        if await run_unless_stopped(stop, _prepare_database(settings, urls)) is None:
            return
        async with open_connections(settings, urls, is_embedded=False) as connections:
            await _begin(settings, connections.db)
            click.echo("The worker is running. Ctrl-C stops it.")
            monitor = QueueMonitor(connections.db)
            tasks = [
                asyncio.create_task(act)
                for act in (monitor.run(stop, connections.notifications), run_jobs(settings, connections, providers, stop))
            ]
            tasks += _start_metrics_export(connections.db, stop)
            async with serve_status(settings, connections.db, status_listener):
                notify_service_manager(READY)
                await run_until_stopped(connections, stop, *tasks)
            _report_stopping()
            await asyncio.gather(*tasks, *([connections.listening] if connections.listening.done() else []))
            log.info("server.stopped")


def _start_metrics_export(db: Db, stop: asyncio.Event) -> list[asyncio.Task[None]]:
    if not is_exported("metrics"):
        return []
    from cmserver.ops.metrics.export import export_metrics  # noqa: PLC0415 - needs the extra otel

    return [asyncio.create_task(export_metrics(db, stop))]


@contextlib.asynccontextmanager
async def serve_status(settings: Settings, db: Db, listener: socket.socket | None) -> AsyncGenerator[None]:
    """Answer for health and metrics during the block."""
    if listener is None:
        yield
        return
    from cmserver.app import create_status_app  # noqa: PLC0415 - half a second, which a worker without a port should not take
    from cmserver.base.http.server import make_server  # noqa: PLC0415 - as above

    try:
        listener.listen()
    except OSError as error:
        raise _port_error(settings, error) from error  # another process had bound the port too, and listened first
    server = make_server(create_status_app(settings, db), settings)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    click.echo(f"Its health and metrics are at {_local_url(listener)}")
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def load_providers(loaded: LoadedSettings, role: Role) -> tuple[Settings, ProviderChain]:
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
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_MILLISECONDS)
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


async def _prepare_database(settings: Settings, urls: DatabaseUrls) -> Literal[True]:
    """Wait for the database, check it, and bring its schema up to date."""
    urls_by_setting = {
        "CMSERVER_DATABASE_URL": urls.owner,
        "CMSERVER_DATABASE_DIRECT_URL": urls.direct,
        "CMSERVER_DATABASE_TENANT_URL": urls.tenant,
    }
    for setting, url in urls_by_setting.items():
        if url is not None:
            await _wait_for_database(settings, setting, url)
    await check_pooling(urls)
    await check_restore_ended(urls.session)
    await migrate(urls.session)
    await prepare_tenant(urls)
    return True


async def _wait_for_database(settings: Settings, setting: str, url: str) -> None:
    try:
        await connect_when_ready(url, settings.database_wait_seconds)
    except OperationalError as error:
        host = conninfo_to_dict(url).get("host") or "its socket"
        reason = (str(error).strip().splitlines() or ["no answer"])[0]
        raise Unavailable(
            f"The database at {host} ({setting}) cannot be reached: {reason}. "
            f"Gave up after {settings.database_wait_seconds:g} seconds (CMSERVER_DATABASE_WAIT_SECONDS)."
        ) from error


def _report_stopping() -> None:
    notify_service_manager(STOPPING)
    log.info("server.stopping")


async def _begin(settings: Settings, db: Db) -> None:
    async with db.system() as conn:
        await ensure_vectors(conn)  # pgvector may have been installed since the tables were made
    await begin_journal(db, ErasureJournal(settings.backup_folder))


def _child_orders(
    settings: Settings,
    role: Literal["all", "api"],
    urls: DatabaseUrls,
    listener: socket.socket,
    start: ServerStart,
    *,
    is_embedded: bool,
) -> list[ChildOrder]:
    """The processes beside this one: the worker, and what `api_processes` asks for."""
    order = ChildOrder(
        role="worker",
        settings=settings,
        urls=urls,
        is_embedded=is_embedded,
        listener=None,
        config_file=start.config_file,
        takes_reload=start.reload is not None,
        not_reloaded=start.not_reloaded,
    )
    api = msgspec.structs.replace(order, role="api", listener=listener.fileno())
    return [*([order] if role == "all" else []), *[api] * (settings.api_processes - 1)]


def _local_url(listener: socket.socket) -> str:
    """The URL of this process for clients on this machine."""
    host, port = listener.getsockname()[:2]
    address = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104
    return f"http://{address}:{port}"


async def _announce(
    settings: Settings, db: Db, url: str, role: Role, first_key: FirstKey | None, *, is_embedded: bool, background: bool
) -> None:
    """Report that the server is ready: on standard output, in the log, to systemd, and in files for commands on this machine."""
    try:
        make_data_dir(settings.data_dir)
        await update_address(db, settings, url)
        state.announce(settings.data_dir, url, role, background=background)
    except (OSError, SetupError, BadCredentials) as error:
        log.warning("credentials.not_written", folder=str(settings.data_dir), error=str(error))
    log.info("server.started", url=url, role=role)
    click.echo(f"cmserver {__version__} is ready at {url}")
    click.echo(
        f"Data: {f'{settings.data_dir} (embedded PostgreSQL)' if is_embedded else 'your PostgreSQL (CMSERVER_DATABASE_URL)'}"
    )
    click.echo(_describe_providers(settings))
    if first_key is not None:
        link = await make_owner_link(db, settings, url) if shows_key() else None
        echo_first_key(settings, msgspec.structs.replace(first_key, owner_link=link))
    notify_service_manager(READY)
