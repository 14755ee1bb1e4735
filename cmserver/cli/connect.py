"""`cmserver connect`, `disconnect` and `connections`: the coding agents of this user."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import click
import msgspec

from cmserver.base.columns import render_table
from cmserver.base.configuration import LoadedSettings
from cmserver.base.errors import CmserverError
from cmserver.cli import state
from cmserver.cli.api_client import confirm, yes_option
from cmserver.cli.config import loaded_option
from cmserver.cli.output import as_called, render_json
from cmserver.cli.pins import PINS_FILE
from cmserver.cli.provider_offer import offer_to_local_server
from cmserver.cli.service_unit import install_service, lacks_service
from cmserver.client import claude_mem, connect
from cmserver.client.agents import AGENTS, CLAUDE_MEM, Agent
from cmserver.client.client_folder import ClientFolder, clients_folder
from cmserver.client.connect import ConnectRequest
from cmserver.client.connections import ConnectionList, check_connections
from cmserver.client.dialog import Dialog
from cmserver.client.git_history import find_repository, has_commits
from cmserver.client.server_api import is_local

_settings_option = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A settings file of the agent, for example that of one project. [default: the user's]",
)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
_url_option = click.option(
    "--server", "url", envvar="CMSERVER_URL", show_envvar=True, help="The server's address. [default: from the credentials file]"
)
_CONNECT_OPTIONS = (
    _url_option,
    click.option(
        "--key",
        envvar="CMSERVER_KEY",
        show_envvar=True,
        help="A key that can make keys, or the agent's own; better in a file that CMSERVER_KEY_FILE names. "
        "[default: from the credentials file]",
    ),
    click.option(
        "--allow-writing/--no-allow-writing",
        default=None,
        help="Let the agent's key also write observations (observations:write), for the MCP tools `observation_add` and "
        "`observation_correct`. "
        "[default: as before, at first no]",
    ),
    click.option(
        "--start-with-machine/--no-start-with-machine",
        default=None,
        help="Start the server with this machine (systemd, launchd), if it runs here. [default: no; what does it later is shown]",
    ),
    _dry_run_option,
    yes_option,
    loaded_option,
)
_EXCLUDE_OPTION = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Send nothing from these folders or repositories, for example ~/private/*; may be repeated.",
)
_READ_HOOK_OPTION = click.option(
    "--on-file/--no-on-file",
    default=None,
    help="Also run a hook before a file is read (CMSERVER_CONTEXT_ON). [default: as before, at first no]",
)
_PLUGIN_OPTION = click.option(
    "--plugin",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Install a plugin, whose marketplace is written into this folder, instead of hooks in the settings.",
)


@click.group("connect")
def connect_group() -> None:
    """Connect a coding agent: write its hooks and tools, and make a key for them. Shows the changes, and asks."""


@click.group("disconnect")
def disconnect_group() -> None:
    """Disconnect a coding agent: remove its hooks and tools, and end the key that was made for them."""


def _add_agent(agent: Agent) -> None:
    def run_connect(loaded: LoadedSettings, **options: object) -> None:
        _connect(agent, loaded, msgspec.convert(options, ConnectRequest))

    def run_disconnect(settings_file: Path | None = None, *, purge: bool, dry_run: bool, yes: bool) -> None:
        connect.disconnect(agent, settings_file, _dialog(yes=yes, dry_run=dry_run), purge=purge)

    # An agent with several files has no option that names one of them.
    settings_options = [_settings_option] if agent.build_files is None else []
    options = [
        *([_READ_HOOK_OPTION] if agent.read_hook else []),
        *([_PLUGIN_OPTION] if agent.has_plugins else []),
        *([_EXCLUDE_OPTION] if agent.records else []),
        *settings_options,
    ]
    connect_group.command(agent.name, help=f"Connect {agent.title}.")(_with_options(run_connect, *options, *_CONNECT_OPTIONS))
    purge_option = click.option("--purge", is_flag=True, help="Delete the calls that could not be sent yet.")
    disconnect_group.command(agent.name, help=f"Disconnect {agent.title}.")(
        _with_options(run_disconnect, *settings_options, purge_option, _dry_run_option, yes_option)
    )


def _with_options(
    command: Callable[..., None], *options: Callable[[Callable[..., None]], Callable[..., None]]
) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


for _agent in AGENTS.values():
    _add_agent(_agent)


def _connect(agent: Agent, loaded: LoadedSettings, request: ConnectRequest) -> None:
    plan = connect.plan_connect(agent, request, loaded.settings, _report)
    url = plan.target.url
    if plan.is_done:
        click.echo(f"{agent.title} is connected to {url} (team {plan.server.team}). Nothing to change.")
        for line in plan.find_warnings():
            click.echo(line)
    else:
        for line in plan.render():
            click.echo(line)
        if not _dialog(yes=request.yes, dry_run=request.dry_run).confirm(f"Connect {agent.title}?"):
            return
        connect.connect(plan, _report)
        said = "Sessions that begin now are recorded." if agent.records else "It can look things up; what it does is not recorded."
        click.echo(f"{agent.title} is connected to {url}. {said}")
    for line in plan.advise():
        click.echo(line)
    repository = find_repository() if agent.records else None
    if repository is not None and has_commits(repository):
        click.echo(as_called(f"A first memory from the history of {repository}: `cmserver import git {quote(str(repository))}`"))
    if repository is not None and (repository / PINS_FILE).is_file():
        click.echo(
            as_called(f"{repository} says what its memory must answer, in {PINS_FILE}. To have it checked: `cmserver pins load`")
        )
    if not (request.yes or request.dry_run):
        offer_to_local_server(loaded, url)
    if is_local(url) and not request.dry_run:
        _start_with_machine(loaded, request.start_with_machine)


def _start_with_machine(loaded: LoadedSettings, chosen: bool | None) -> None:
    """Install the service when it is chosen; where nothing is said of it, show once how it is done."""
    data_dir = loaded.settings.data_dir
    is_ours = state.running(data_dir) is not None  # it may also be a container's, with a published port
    if chosen is None and is_ours and lacks_service():
        click.echo(as_called("To start the server with the machine: `cmserver service install`"))
    if chosen:
        try:
            install_service(loaded, is_system=os.geteuid() == 0, starts=state.running(data_dir) is None)
        except CmserverError as error:  # the agent is connected all the same
            click.echo(f"The server does not start with the machine: {error}", err=True)


def _dialog(*, yes: bool, dry_run: bool) -> Dialog:
    def ask(question: str) -> bool:
        if dry_run:
            click.echo("Nothing is changed (--dry-run).")
        else:
            confirm(question, yes=yes)
        return not dry_run

    return Dialog(report=_report, confirm=ask)


def _report(message: str, *, err: bool = False) -> None:
    click.echo(as_called(message), err=err)


@connect_group.command(CLAUDE_MEM)
@_url_option
@click.option(
    "--key",
    envvar="CMSERVER_KEY",
    show_envvar=True,
    help="With --server-mode: a key that can make keys, or the plugin's own. [default: from the credentials file]",
)
@click.option("--server-mode", is_flag=True, help="Let the plugin send to a server with a key, into one project (--project).")
@click.option("--project", metavar="NAME", help="With --server-mode: the project of everything that is sent.")
@_settings_option
@_dry_run_option
@yes_option
@loaded_option
def connect_claude_mem(
    url: str | None,
    key: str | None,
    project: str | None,
    settings_file: Path | None,
    loaded: LoadedSettings,
    *,
    server_mode: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Connect the stock claude-mem plugin: only its settings are changed."""
    if server_mode != (project is not None):
        raise click.UsageError("--server-mode and --project NAME go together.")
    claude_mem.connect(loaded.settings, url, key, project, settings_file, _dialog(yes=yes, dry_run=dry_run))
    connection = ClientFolder(clients_folder(os.environ), CLAUDE_MEM).connection()
    if connection is not None and not (yes or dry_run):
        offer_to_local_server(loaded, connection.url)


@disconnect_group.command(CLAUDE_MEM)
@_settings_option
@_dry_run_option
@yes_option
def disconnect_claude_mem(settings_file: Path | None, *, dry_run: bool, yes: bool) -> None:
    """Disconnect claude-mem: restore its settings."""
    claude_mem.disconnect(settings_file, _dialog(yes=yes, dry_run=dry_run))


@click.command("connections")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def connections(*, as_json: bool) -> None:
    """List the connected agents: their settings, their server, and the calls that were not sent yet."""
    agents = check_connections(clients_folder(os.environ))
    if as_json:
        click.echo(render_json(msgspec.json.encode(ConnectionList(connections=agents))))
        return
    rows = [
        (
            agent.agent,
            agent.url,
            agent.server,
            agent.key_id,
            agent.waiting,
            agent.dropped,
            agent.refused,
            agent.plugin or " ".join(agent.settings),
        )
        for agent in agents
    ]
    titles = ("agent", "url", "server", "key", "waiting", "dropped", "refused", "settings")
    empty = as_called("No agent is connected. `cmserver connect --help` shows how to connect one.")
    click.echo(render_table(titles, rows, empty=empty, shrink=("settings",)))
    for line in [line for agent in agents for line in agent.advise()]:
        _report(line, err=True)
