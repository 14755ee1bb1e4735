"""`cmserver start`, `stop`, `restart` and `status`: the server in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click
import httpx
import msgspec

from cmserver.access.people.wire import NewInvitationOut
from cmserver.base import credentials
from cmserver.base.configuration import load
from cmserver.base.credentials import Credentials
from cmserver.base.errors import CmserverError
from cmserver.base.log_files import LOG_NAME, rotate_log
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.own_command import build_own_command
from cmserver.base.settings import Settings
from cmserver.cli import state
from cmserver.cli.config import config_file_option
from cmserver.cli.exit_codes import ExitCode
from cmserver.cli.first_key import FirstKey, echo_first_key, shows_key
from cmserver.cli.output import as_called, render_json
from cmserver.cli.state import ServerState
from cmserver.client.client_folder import clients_folder
from cmserver.client.connections import check_connections, render_unsent_calls
from cmserver.client.server_api import normalize_address
from cmserver.embedded.files import make_data_dir
from cmserver.embeddings.wire import EmbeddingsOut
from cmserver.ops.spending.wire import BudgetOut
from cmserver.ops.wire import AnswersOut, ProviderOut, QueueOut, StewardOut, WaitingRulesOut

READY_SECONDS = 60.0
STOPPED_SECONDS = 15.0
_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 5.0
_ERROR_PREFIX = "cmserver: "


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
    provider: ProviderOut | None = None
    queue: QueueOut | None = None
    answers: AnswersOut | None = None
    rules: WaitingRulesOut | None = None
    embeddings: EmbeddingsOut | None = None
    steward: StewardOut | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `status --json`."""

    running: bool
    ready: bool
    why_not: str | None = None
    """A sentence about what is wrong, or why the rest is unknown."""
    url: str | None = None
    pid: int | None = None
    background: bool | None = None
    role: str | None = None
    since_epoch: int | None = None
    info: Info | None = None
    exhausted: list[BudgetOut] = []
    """The budgets that are spent, as far as the key may know."""
    hooks: list[str] = []
    """A line for each agent of this user with calls that wait or were lost."""
    agents: list[str] = []
    """A line for each agent of this user that sends to another server, with how that is."""


_host_option = click.option("--host", help="Instead of CMSERVER_HOST.")
_port_option = click.option("--port", help="Instead of CMSERVER_PORT.")


@click.command()
@config_file_option
@_host_option
@_port_option
def start(config_file: Path | None, host: str | None, port: str | None) -> None:
    """Start the server in the background and return when it is ready."""
    _start(_settings(config_file, host, port), _arguments(config_file, host, port))


@click.command()
@config_file_option
def stop(config_file: Path | None) -> None:
    """Stop the server that `cmserver start` started, after its current requests and jobs."""
    _stop(_settings(config_file))


@click.command()
@config_file_option
@_host_option
@_port_option
def restart(config_file: Path | None, host: str | None, port: str | None) -> None:
    """Stop the server in the background, if there is one, and start it."""
    settings = _settings(config_file, host, port)
    _stop(settings)
    _start(settings, _arguments(config_file, host, port))


@click.command()
@config_file_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(config_file: Path | None, as_json: bool) -> None:
    """Show whether the server runs, and its queue. Exits with 1 when it does not run or is not ready."""
    found = _read_status(_settings(config_file))
    found = msgspec.structs.replace(found, hooks=_unsent_calls(), agents=_agents_elsewhere(found.url))
    if as_json:
        click.echo(render_json(msgspec.json.encode(found)))
    else:
        agents = [*(f"agent     {line}" for line in found.agents), *(f"hooks     {line}" for line in found.hooks)]
        click.echo("\n".join([*_render(found), *agents]))
    if not found.ready:
        sys.exit(ExitCode.FAILURE)


def _settings(config_file: Path | None, host: str | None = None, port: str | None = None) -> Settings:
    options = {"CMSERVER_HOST": host, "CMSERVER_PORT": port}
    return load({**os.environ, **{name: value for name, value in options.items() if value}}, config_file=config_file).settings


def _arguments(config_file: Path | None, host: str | None, port: str | None) -> list[str]:
    options = {"--config": config_file, "--host": host, "--port": port}
    return [word for name, value in options.items() if value for word in (name, str(value))]


# -- start


def _start(settings: Settings, arguments: list[str]) -> None:
    server = state.running(settings.data_dir)
    if server is not None:
        place = "in the background" if server.background else "in the foreground"
        click.echo(f"cmserver runs already {place} at {server.url} (process {server.pid}).")
        return
    make_data_dir(settings.data_dir)
    old_credentials = credentials.read(settings.data_dir)
    log_file = settings.data_dir / LOG_NAME
    child, offset = _spawn(log_file, arguments)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        code = child.poll()
        if code is not None:
            click.echo(f"{_ERROR_PREFIX}{_read_last_message(log_file, offset, code)}", err=True)
            sys.exit(code if code > 0 else ExitCode.FAILURE)
        server = state.running(settings.data_dir)
        if server is not None and server.pid == child.pid and _find_problem(server.url) is None:
            report_start(settings, server, old_credentials, log_file)
            return
        time.sleep(_POLL_SECONDS)
    click.echo(
        f"{_ERROR_PREFIX}The server (process {child.pid}) is not ready after {READY_SECONDS:.0f} s. See {log_file}.", err=True
    )
    sys.exit(ExitCode.FAILURE)


def _spawn(log_file: Path, arguments: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """The server, detached from this terminal, and the offset of its output in the log."""
    try:
        rotate_log(log_file)
        output = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CmserverError(
            f"The log {log_file} cannot be written ({error.strerror}). Run cmserver as the user who owns it."
        ) from error
    try:
        child = subprocess.Popen(  # noqa: S603 - ourselves
            build_own_command("run", "--background", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        return child, os.fstat(output).st_size
    finally:
        os.close(output)


def report_start(settings: Settings, server: ServerState, old_credentials: Credentials | None, log_file: Path) -> None:
    """Say where the server is, and where its first key is if this start made it; `old_credentials` are those of before."""
    click.echo(f"cmserver is ready at {server.url} (process {server.pid})")
    click.echo(f"Data: {settings.data_dir}; log: {log_file}")
    stored = credentials.read(settings.data_dir)
    if stored is not None and (old_credentials is None or old_credentials.key != stored.key):
        link = _make_owner_link(server.url, stored.key) if shows_key() else None
        file = settings.data_dir / credentials.FILE_NAME
        echo_first_key(settings, FirstKey(text=stored.key, file=file, owner_link=link))
    click.echo(as_called("`cmserver status` shows its state, `cmserver stop` stops it."))


def _make_owner_link(url: str, key: str) -> str | None:
    """A link that makes the first owner's account; None when the server makes none."""
    body = {"role": "owner", "operator": True}
    try:
        answer = httpx.post(f"{url}/v1/users/invitations", json=body, headers={"X-Api-Key": key})
        return msgspec.json.decode(answer.content, type=NewInvitationOut).url
    except (httpx.HTTPError, msgspec.DecodeError):
        return None


def _read_last_message(log_file: Path, offset: int, code: int) -> str:
    """The server's last output: its error message, else the last line of its log."""
    with log_file.open("rb") as file:
        file.seek(offset)
        output = file.read().decode(errors="replace").strip()
    at = f"\n{output}".rfind(f"\n{_ERROR_PREFIX}")
    if at >= 0:
        return output[at + len(_ERROR_PREFIX) :]
    return f"The server ended while it started (exit code {code}): {(output.splitlines() or ['no output'])[-1]} See {log_file}."


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
    deadline = time.monotonic() + STOPPED_SECONDS
    while state.alive(server):
        if time.monotonic() > deadline:
            raise CmserverError(
                f"The server (process {server.pid}) has not stopped within {STOPPED_SECONDS:.0f} s; it may still be finishing. "
                f"Its log is {settings.data_dir / LOG_NAME}."
            )
        time.sleep(_POLL_SECONDS)
    click.echo(f"cmserver (process {server.pid}) has stopped.")


# -- status


def _read_status(settings: Settings) -> Status:
    server = state.running(settings.data_dir)
    if server is None:
        return Status(running=False, ready=False)
    problem = _find_problem(server.url)
    is_ready = problem is None
    info: Info | None = None
    if is_ready:
        info, problem = read_info(settings, server.url)
    return Status(
        running=True,
        ready=is_ready,
        why_not=problem,
        url=server.url,
        pid=server.pid,
        background=server.background,
        role=server.role,
        since_epoch=server.since_epoch,
        info=info,
        exhausted=[budget for budget in info.answers.budgets if budget.state == "exhausted"] if info and info.answers else [],
    )


def _find_problem(url: str) -> str | None:
    """Why the server is not ready; None when it is."""
    try:
        response = httpx.get(f"{url}/readyz", timeout=_TIMEOUT_SECONDS, trust_env=False)
    except httpx.HTTPError as error:
        return f"The server does not answer ({type(error).__name__})."
    return None if response.is_success else f"The server is not ready: {_message(response)}"


def read_info(settings: Settings, url: str) -> tuple[Info | None, str | None]:
    """GET /v1/info, or why there is none."""
    stored = credentials.read(settings.data_dir)
    if stored is None:
        return None, f"There is no key in {settings.data_dir / credentials.FILE_NAME}, so the queue is not shown."
    headers = {"Authorization": f"Bearer {stored.key}"}
    try:
        response = httpx.get(f"{url}/v1/info", headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=False)
        if not response.is_success:
            return None, f"The server did not return its queue status: {_message(response)}"
        return msgspec.json.decode(response.content, type=Info), None
    except httpx.HTTPError as error:
        return None, f"The server does not answer ({type(error).__name__})."
    except msgspec.DecodeError:
        return None, "The server is of another version than this command."


def _unsent_calls() -> list[str]:
    try:
        return render_unsent_calls(clients_folder(os.environ))
    except CmserverError as error:
        return [str(error)]  # it is no problem of the server's


def _agents_elsewhere(url: str | None) -> list[str]:
    """The agents that send to another server than this one."""
    try:
        agents = check_connections(clients_folder(os.environ))
    except CmserverError:
        return []  # the line of the hooks says why
    here = url and normalize_address(url)
    elsewhere = [agent for agent in agents if normalize_address(agent.url) != here]
    return [f"{agent.agent} sends to {sanitize_line(agent.url)} ({agent.server})" for agent in elsewhere]


def _message(response: httpx.Response) -> str:
    try:
        return msgspec.json.decode(response.content, type=dict[str, str]).get("message", f"status {response.status_code}")
    except msgspec.DecodeError:
        return f"status {response.status_code}"


def _render(found: Status) -> list[str]:
    if not found.running:
        return ["cmserver is not running on this machine."]
    place = "background" if found.background else "foreground"
    lines = [
        f"cmserver {'is ready' if found.ready else 'runs, but is not ready'} at {found.url}",
        f"process   {found.pid} in the {place}, since {_local_time(found.since_epoch)}",
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
    if info.answers:
        lines += _answer_lines(info.answers)
    if info.rules and (info.rules.waiting or info.rules.expired):
        lines.append(f"rules     {_describe_rules(info.rules)}")
    if info.embeddings:
        lines += _embedding_lines(info.embeddings)
    if info.steward and info.steward.mode != "off":
        lines.append(_steward_line(info.steward))
    return lines + [_budget_line(budget) for budget in found.exhausted]


def _answer_lines(answers: AnswersOut) -> list[str]:
    error = answers.describe_error()
    return [
        f"answers   {answers.describe()} in 24 hours",
        *([f"          last error {error}"] if error else []),
        f"today     {answers.describe_cost()}",
    ]


def _describe_rules(rules: WaitingRulesOut) -> str:
    oldest = f", the oldest for {rules.oldest_days:.0f} days" if rules.waiting else ""
    unanswered = f"; {rules.expired} got no answer in time" if rules.expired else ""
    return f"{rules.waiting} wait for a person's yes{oldest}{unanswered} (`cmserver rules pending`)"


def _queue_lines(queue: QueueOut) -> list[str]:
    later = f" ({queue.delayed} until their time, or the end of their turn)" if queue.delayed else ""
    waiting = queue.waiting + queue.delayed
    counts = f"{waiting} waiting{later}, {queue.active} active, {queue.held} held, {queue.failed} failed"
    oldest = "" if queue.oldest_waiting_seconds is None else f"; the oldest waits for {_duration(queue.oldest_waiting_seconds)}"
    lines = [f"queue     {counts}{oldest}"]
    if queue.recovered:
        lines.append(f"          {queue.recovered} came back from workers that were lost")
    if queue.warning:
        lines.append(f"          {queue.warning}")
    return lines


def _steward_line(steward: StewardOut) -> str:
    mode = f"{steward.mode.replace('_', ' ')}{', paused' if steward.paused else ''}"
    return f"steward   {mode}: {steward.queued} queued, {steward.running} running, {steward.dead_letter} given up in 24 hours"


def _provider_lines(provider: ProviderOut) -> list[str]:
    first, *others = provider.chain or [provider.name]
    model = "rules, no model" if first == "offline" else provider.model
    return [
        f"provider  {first}{f' ({sanitize_line(model)})' if model else ''}{', then ' if others else ''}{', '.join(others)}",
        *(
            f"          {pause.provider} is paused until {_local_time(pause.until_epoch)}: {pause.message}"
            for pause in provider.pauses
        ),
    ]


def _embedding_lines(embeddings: EmbeddingsOut) -> list[str]:
    if embeddings.model is None:
        return [f"embedder  none. {sanitize_line(embeddings.hint or '')}".rstrip()]
    failing = f", {embeddings.failing} of them failed" if embeddings.failing else ""
    waiting = f"{embeddings.waiting} waiting{failing}" if embeddings.waiting else "nothing waits"
    lines = [f"embedder  {embeddings.embedder} ({sanitize_line(embeddings.model)}): {waiting}"]
    if building := embeddings.building:
        lines.append(
            f"          {building.embedder} ({sanitize_line(building.model)}) takes its place; {building.waiting} wait for it"
        )
    if embeddings.hint:
        lines.append(f"          {sanitize_line(embeddings.hint)}")
    return lines


def _budget_line(budget: BudgetOut) -> str:
    owner = f"the project {sanitize_line(budget.project)}" if budget.project else "the team"
    until = _local_time(budget.resets_at_epoch)
    return f"budget    {owner} has spent its budget of this {budget.period}: no model is asked until {until}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _local_time(epoch_ms: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime((epoch_ms or 0) / 1000))
