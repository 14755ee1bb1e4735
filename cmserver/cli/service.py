"""`cmserver start`, `stop`, `restart` and `status`: the server in the background, and how it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import httpx
import msgspec

from cmserver.base import credentials
from cmserver.base.configuration import load
from cmserver.base.credentials import Credentials
from cmserver.base.errors import CmserverError
from cmserver.base.postgres import make_data_dir
from cmserver.base.settings import Settings
from cmserver.cli import state
from cmserver.cli.connections import spooled
from cmserver.cli.exits import Exit
from cmserver.cli.run import first_key_lines
from cmserver.cli.show import plain
from cmserver.cli.state import ServerState
from cmserver.hooks.attach.folder import clients_folder

READY_SECONDS = 60.0
STOPPED_SECONDS = 15.0
LOG_NAME = "cmserver.log"
LOG_KEPT_BYTES = 10_000_000
_TICK_SECONDS = 0.05
_ASK_SECONDS = 5.0
_OWN_SENTENCE = "cmserver: "


class Queue(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The queue of the key's team, as GET /v1/info tells it."""

    waiting: int
    active: int
    delayed: int
    held: int
    failed: int
    oldest_waiting_seconds: float | None
    recovered: int = 0
    warning: str | None = None


class Pause(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why a provider is left alone, and until when."""

    provider: str
    reason: str
    message: str
    until_epoch: int


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Who generates observations."""

    name: str
    chain: list[str] = []
    pauses: list[Pause]


class Budget(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What may be spent on providers in a day or a month, by the team or one of its projects."""

    project: str | None
    period: str
    state: str
    resets_at_epoch: int


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """What `status` reads of GET /v1/budgets."""

    budgets: list[Budget]


class Building(msgspec.Struct, frozen=True, kw_only=True):
    """The model of embeddings that takes the place of the one in use."""

    embedder: str
    model: str
    waiting: int


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    """How embedding goes, for the key's team."""

    state: str
    embedder: str | None
    model: str | None
    waiting: int
    failing: int
    building: Building | None
    hint: str | None


class Postgres(msgspec.Struct, frozen=True, kw_only=True):
    """The database."""

    version: str
    embedded: bool
    vectors: bool


class Info(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What `status` reads of GET /v1/info."""

    version: str
    postgres: Postgres
    workers: int
    provider: Provider | None = None
    queue: Queue | None = None
    embeddings: Embeddings | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `status --json`."""

    running: bool
    ready: bool
    why_not: str | None = None
    """A sentence, when something keeps the rest from being known."""
    url: str | None = None
    pid: int | None = None
    background: bool | None = None
    role: str | None = None
    since_epoch: int | None = None
    info: Info | None = None
    exhausted: list[Budget] = []
    """The budgets of which nothing is left, as far as the key may know."""
    hooks: list[str] = []
    """A sentence for each agent of this user whose calls wait, or were lost."""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--port", help="Instead of CMSERVER_PORT."),
        click.option("--host", help="Instead of CMSERVER_HOST."),
        click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings."),
    ):
        command = option(command)
    return command


@click.command()
@_options
def start(config_file: Path | None, host: str | None, port: str | None) -> None:
    """Start the server in the background and return when it is ready."""
    _start(_settings(config_file, host, port), _arguments(config_file, host, port))


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
def stop(config_file: Path | None) -> None:
    """Stop the server that `cmserver start` has started; it finishes what it has begun."""
    _stop(_settings(config_file))


@click.command()
@_options
def restart(config_file: Path | None, host: str | None, port: str | None) -> None:
    """Stop the server in the background, if there is one, and start it."""
    settings = _settings(config_file, host, port)
    _stop(settings)
    _start(settings, _arguments(config_file, host, port))


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
def status(config_file: Path | None, as_json: bool) -> None:
    """Say whether the server runs, and how its queue is. Exits 1 when it does not run or is not ready."""
    found = msgspec.structs.replace(_status(_settings(config_file)), hooks=_hooks())
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        click.echo("\n".join([*_lines(found), *(f"hooks     {line}" for line in found.hooks)]))
    if not found.ready:
        sys.exit(Exit.NO)


def _settings(config_file: Path | None, host: str | None = None, port: str | None = None) -> Settings:
    given = {"CMSERVER_HOST": host, "CMSERVER_PORT": port}
    return load({**os.environ, **{name: value for name, value in given.items() if value}}, config_file=config_file).settings


def _arguments(config_file: Path | None, host: str | None, port: str | None) -> list[str]:
    given = {"--config": config_file, "--host": host, "--port": port}
    return [word for name, value in given.items() if value for word in (name, str(value))]


# -- start


def _start(settings: Settings, arguments: list[str]) -> None:
    there = state.running(settings.data_dir)
    if there is not None:
        how = "in the background" if there.background else "in the foreground"
        click.echo(f"cmserver runs already {how} at {there.url} (process {there.pid}).")
        return
    make_data_dir(settings.data_dir)
    had = credentials.read(settings.data_dir)
    log_file = settings.data_dir / LOG_NAME
    child, offset = _spawn(log_file, arguments)
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        code = child.poll()
        if code is not None:
            click.echo(f"{_OWN_SENTENCE}{_last_sentence(log_file, offset, code)}", err=True)
            sys.exit(code if code > 0 else Exit.NO)
        server = state.running(settings.data_dir)
        if server is not None and server.pid == child.pid and _why_not_ready(server.url) is None:
            _tell(settings, server, had, log_file)
            return
        time.sleep(_TICK_SECONDS)
    click.echo(
        f"{_OWN_SENTENCE}The server (process {child.pid}) is not ready after {READY_SECONDS:.0f} s. See {log_file}.", err=True
    )
    sys.exit(Exit.NO)


def _spawn(log_file: Path, arguments: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """The server, detached from this terminal; and where in the log its life begins."""
    try:
        if log_file.exists() and log_file.stat().st_size > LOG_KEPT_BYTES:
            log_file.replace(log_file.with_suffix(".log.1"))
        output = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CmserverError(
            f"The log {log_file} cannot be written ({error.strerror}). Run cmserver as the user who owns it."
        ) from error
    try:
        child = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "cmserver", "run", "--background", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        return child, os.fstat(output).st_size
    finally:
        os.close(output)


def _tell(settings: Settings, server: ServerState, had: Credentials | None, log_file: Path) -> None:
    click.echo(f"cmserver is ready at {server.url} (process {server.pid})")
    click.echo(f"Data: {settings.data_dir}; log: {log_file}")
    has = credentials.read(settings.data_dir)
    if has is not None and (had is None or had.key != has.key):
        click.echo(first_key_lines(settings, has.key, settings.data_dir / credentials.FILE_NAME))
    click.echo("`cmserver status` says how it is, `cmserver stop` stops it.")


def _last_sentence(log_file: Path, offset: int, code: int) -> str:
    """What the server said before it went: its own sentence, else the last line of its log."""
    with log_file.open("rb") as file:
        file.seek(offset)
        said = file.read().decode(errors="replace").strip()
    start_of_own = f"\n{said}".rfind(f"\n{_OWN_SENTENCE}")
    if start_of_own >= 0:
        return said[start_of_own + len(_OWN_SENTENCE) :]
    return f"The server ended while it started (exit code {code}): {(said.splitlines() or ['it said nothing'])[-1]} See {log_file}."


# -- stop


def _stop(settings: Settings) -> None:
    server = state.running(settings.data_dir)
    if server is None:
        click.echo("cmserver is not running.")
        return
    if not server.background:
        raise CmserverError(
            f"The server at {server.url} (process {server.pid}) was not started by `cmserver start`. "
            "Stop it where it runs: Ctrl-C in its terminal, or with the service manager that started it."
        )
    try:
        state.terminate(server)
    except PermissionError as error:
        raise CmserverError(
            f"The server at {server.url} (process {server.pid}) belongs to another user. Stop it as that user."
        ) from error
    end = time.monotonic() + STOPPED_SECONDS
    while state.alive(server):
        if time.monotonic() > end:
            raise CmserverError(
                f"The server (process {server.pid}) has not stopped within {STOPPED_SECONDS:.0f} s; it may still be finishing. "
                f"Its log is {settings.data_dir / LOG_NAME}."
            )
        time.sleep(_TICK_SECONDS)
    click.echo(f"cmserver (process {server.pid}) has stopped.")


# -- status


def _status(settings: Settings) -> Status:
    server = state.running(settings.data_dir)
    if server is None:
        return Status(running=False, ready=False)
    why_not = _why_not_ready(server.url)
    info: Info | None = None
    exhausted: list[Budget] = []
    if why_not is None:
        info, why_unknown = _info(settings, server.url)
        exhausted = _exhausted(settings, server.url) if info else []
    else:
        why_unknown = why_not
    return Status(
        running=True,
        ready=why_not is None,
        why_not=why_unknown,
        url=server.url,
        pid=server.pid,
        background=server.background,
        role=server.role,
        since_epoch=server.since_epoch,
        info=info,
        exhausted=exhausted,
    )


def _why_not_ready(url: str) -> str | None:
    """A sentence, or None when the server is ready."""
    try:
        answer = httpx.get(f"{url}/readyz", timeout=_ASK_SECONDS, trust_env=False)
    except httpx.HTTPError as error:
        return f"The server does not answer ({type(error).__name__})."
    return None if answer.is_success else f"The server is not ready: {_message(answer)}"


def _info(settings: Settings, url: str) -> tuple[Info | None, str | None]:
    """What the server says of itself, or a sentence why that is not known."""
    known = credentials.read(settings.data_dir)
    if known is None:
        return None, f"There is no key in {settings.data_dir / credentials.FILE_NAME}, so the queue cannot be asked about."
    headers = {"Authorization": f"Bearer {known.key}"}
    try:
        answer = httpx.get(f"{url}/v1/info", headers=headers, timeout=_ASK_SECONDS, trust_env=False)
        if not answer.is_success:
            return None, f"The server does not tell how its queue is: {_message(answer)}"
        return msgspec.json.decode(answer.content, type=Info), None
    except httpx.HTTPError as error:
        return None, f"The server does not answer ({type(error).__name__})."
    except msgspec.DecodeError:
        return None, "The server is of another version than this command."


def _hooks() -> list[str]:
    try:
        return spooled(clients_folder(os.environ))
    except CmserverError as error:
        return [str(error)]  # the server is none the worse for it


def _exhausted(settings: Settings, url: str) -> list[Budget]:
    """None where the key may not read budgets, or the server has none."""
    known = credentials.read(settings.data_dir)
    headers = {"Authorization": f"Bearer {known.key}"} if known else {}
    try:
        answer = httpx.get(f"{url}/v1/budgets", headers=headers, timeout=_ASK_SECONDS, trust_env=False)
        told = msgspec.json.decode(answer.content, type=Budgets) if answer.is_success else Budgets(budgets=[])
    except (httpx.HTTPError, msgspec.DecodeError):
        return []
    return [one for one in told.budgets if one.state == "exhausted"]


def _message(answer: httpx.Response) -> str:
    try:
        return msgspec.json.decode(answer.content, type=dict[str, str]).get("message", f"status {answer.status_code}")
    except msgspec.DecodeError:
        return f"status {answer.status_code}"


def _lines(found: Status) -> list[str]:
    if not found.running:
        return ["cmserver is not running."]
    how = "background" if found.background else "foreground"
    lines = [
        f"cmserver {'is ready' if found.ready else 'runs, but is not ready'} at {found.url}",
        f"process   {found.pid} in the {how}, since {_local_time(found.since_epoch)}",
    ]
    if found.why_not:
        lines.append(found.why_not)
    info = found.info
    if info is None:
        return lines
    kind = "embedded" if info.postgres.embedded else "given by URL"
    lines += [
        f"version   {info.version}",
        f"database  PostgreSQL {info.postgres.version}, {kind}, {'with' if info.postgres.vectors else 'without'} vectors",
        f"workers   {info.workers}{'' if info.workers else ': events are stored and wait until one runs'}",
    ]
    if info.queue:
        lines += _queue_lines(info.queue)
    if info.provider:
        lines += _provider_lines(info.provider)
    if info.embeddings:
        lines += _embedding_lines(info.embeddings)
    return lines + [_budget_line(one) for one in found.exhausted]


def _queue_lines(queue: Queue) -> list[str]:
    counts = f"{queue.waiting} waiting, {queue.active} active, {queue.delayed} delayed, {queue.held} held, {queue.failed} failed"
    oldest = "" if queue.oldest_waiting_seconds is None else f"; the oldest waits for {_duration(queue.oldest_waiting_seconds)}"
    lines = [f"queue     {counts}{oldest}"]
    if queue.recovered:
        lines.append(f"          {queue.recovered} came back from workers that were lost")
    if queue.warning:
        lines.append(f"          {queue.warning}")
    return lines


def _provider_lines(provider: Provider) -> list[str]:
    chain = provider.chain or [provider.name]
    return [
        f"provider  {chain[0]}{', then ' if chain[1:] else ''}{', '.join(chain[1:])}",
        *(
            f"          {pause.provider} is paused until {_local_time(pause.until_epoch)} ({pause.reason}): {pause.message}"
            for pause in provider.pauses
        ),
    ]


def _embedding_lines(embeddings: Embeddings) -> list[str]:
    if embeddings.model is None:
        return [f"embedder  none. {plain(embeddings.hint or '')}".rstrip()]
    failing = f", {embeddings.failing} of them failed" if embeddings.failing else ""
    waiting = f"{embeddings.waiting} waiting{failing}" if embeddings.waiting else "nothing waits"
    lines = [f"embedder  {embeddings.embedder} ({plain(embeddings.model)}): {waiting}"]
    if building := embeddings.building:
        lines.append(f"          {building.embedder} ({plain(building.model)}) takes its place; {building.waiting} wait for it")
    if embeddings.hint:
        lines.append(f"          {plain(embeddings.hint)}")
    return lines


def _budget_line(budget: Budget) -> str:
    of = f"the project {plain(budget.project)}" if budget.project else "the team"
    until = _local_time(budget.resets_at_epoch)
    return f"budget    {of} has spent its budget of this {budget.period}: no model is asked until {until}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _local_time(epoch_ms: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime((epoch_ms or 0) / 1000))
