"""What every command that calls the API shares: its options, the server and key it uses, and how it prints the answer."""

from __future__ import annotations

import asyncio
import functools
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote
from uuid import UUID

import click
import httpx
from msgspec import structs

from cmserver.access.projects import canonical_id
from cmserver.base import credentials, logs
from cmserver.base.db import DatabaseUrls
from cmserver.base.errors import CmserverError, Forbidden, Invalid, NotFound
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.settings import Settings
from cmserver.cli.config import settings_option
from cmserver.cli.database import database_urls
from cmserver.cli.operator import Operator, open_operator_client
from cmserver.cli.output import as_called, render_json
from cmserver.client import server_api
from cmserver.client.client_folder import read_project
from cmserver.client.connections import describe_other_servers, find_connection_of_key, find_server
from cmserver.client.server_api import Api, ApiAnswer, MissingKey, ServerUnreachable, UnreadableAnswer

T = TypeVar("T")
Action = Callable[..., Coroutine[None, None, None]]

_OPERATOR_HINT = "With access to the database you need neither server nor key: --operator --team NAME."
_WRONG_KEY = "This API key is wrong"
_OTHER_DATABASE = (
    "It is the key in {file}. If the database was restored or replaced, make a new one with `cmserver keys create --operator "
    "--team NAME`, and write it into that file; `cmserver doctor` says more."
)
_AGENT_KEY = "It is the key of {agent}. Connect it again: `cmserver connect {agent}{option}`."
_NO_TEAM = "Name the team: --operator --team NAME. `cmserver teams list --operator` lists all teams."
_PROJECT_PATHS = {"$.project", "$.projectId"}
_OTHER_VERSION = "The server is of another version than this command: here is its answer as JSON."


class ApiClient(Api):
    """Calls the API for one command and prints its answers."""

    def __init__(self, http: httpx.AsyncClient, data_dir: Path, *, as_json: bool, operator: Operator | None = None) -> None:
        super().__init__(http)
        self._data_dir = data_dir
        self.as_json = as_json
        self.operator = operator
        """Set with --operator, when the command calls the API in its own process, without a key."""

    @property
    def address(self) -> str:
        """The server's address."""
        return str(self._http.base_url).rstrip("/")

    def show(self, answer: ApiAnswer, type_: type[T], render: Callable[[T], str]) -> None:
        """Print the answer: rendered for people, or its JSON with --json and where a server of another version lacks a field."""
        text = None
        if not self.as_json:
            try:
                text = render(answer.read(type_))
            except UnreadableAnswer:
                click.echo(_OTHER_VERSION, err=True)
        click.echo(render_json(answer.raw) if text is None else text)

    def store_rotated_key(self, old_key_id: UUID, key: str) -> None:
        """Replace the key in the data folder's credentials file, if it is the old one."""
        stored = credentials.read(self._data_dir)
        if stored is not None and credentials.parse_key_id(stored.key) == old_key_id:
            path = credentials.write(self._data_dir, structs.replace(stored, key=key))
            click.echo(f"The new key replaces the old one in {path}.", err=True)

    async def act_for_team(self, team: str | None) -> None:
        """Let the operator act for the team of the command's argument, unless --team named one."""
        if self.operator is None or self.operator.has_team:
            return
        if team is None:
            raise click.UsageError(as_called(_NO_TEAM))
        await self.operator.act_for(team)


_OPTIONS = (
    click.option(
        "--url",
        envvar="CMSERVER_URL",
        show_envvar=True,
        help="The server's address. [default: from the credentials file, else that of the connected agents]",
    ),
    click.option(
        "--key",
        envvar="CMSERVER_KEY",
        show_envvar=True,
        help="The API key; better a file that CMSERVER_KEY_FILE names. [default: from the credentials file]",
    ),
    click.option("--operator", is_flag=True, help="Use the database directly, without server and key. Needs --team."),
    click.option("--team", "operator_team", metavar="NAME", help="With --operator: the team to act for, by name or id."),
    settings_option,
    click.option("--json", "as_json", is_flag=True, help="Print the API's answer as JSON."),
)


def api_command(action: Action) -> Callable[..., None]:
    """Make a command of a coroutine that takes an `ApiClient` and its own parameters. Put it last, above `async def`."""
    return _command(action, needs_team=True)


def team_command(action: Action) -> Callable[..., None]:
    """Make a command of a coroutine, as `api_command` does, that names a team itself: --operator works without --team."""
    return _command(action, needs_team=False)


def _command(action: Action, *, needs_team: bool) -> Callable[..., None]:
    """The click command of a coroutine: it adds the options of all API commands, and calls the server or acts as operator."""

    @functools.wraps(action)
    def command(
        url: str | None,
        key: str | None,
        operator_team: str | None,
        settings: Settings,
        *,
        operator: bool,
        as_json: bool,
        **values: object,
    ) -> None:
        if operator_team and not operator:
            raise click.UsageError("--team needs --operator; a key has its own team.")
        if operator and needs_team and not operator_team:
            raise click.UsageError(as_called(_NO_TEAM))

        async def call_server() -> None:
            used_key = None
            try:
                address, used_key = find_server(settings, url, key)
                async with server_api.open_http_client(address, used_key) as http:
                    await action(ApiClient(http, settings.data_dir, as_json=as_json), **values)
            except (Forbidden, MissingKey, ServerUnreachable) as error:
                raise _explain(error, settings, key, used_key) from error

        async def call_as_operator(database: DatabaseUrls) -> None:
            async with open_operator_client(settings, database) as (http, principal):
                if operator_team:
                    await principal.act_for(operator_team)
                await action(ApiClient(http, settings.data_dir, as_json=as_json, operator=principal), **values)

        if operator:
            logs.configure(settings.log_format, "warning")  # the API runs in this process, and its log is not the answer
            with database_urls(settings) as database:
                asyncio.run(call_as_operator(database))
        else:
            asyncio.run(call_server())

    decorated: Callable[..., None] = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _explain(error: CmserverError, settings: Settings, key: str | None, used_key: str | None) -> CmserverError:
    """The error with what to do. A key that nobody has named is that of an agent, or of the credentials file."""
    if not isinstance(error, Forbidden):
        return type(error)(f"{error} {_OPERATOR_HINT}")
    if key is not None or os.environ.get("CMSERVER_KEY_FILE") or not str(error).startswith(_WRONG_KEY):
        return error
    file = settings.data_dir / credentials.FILE_NAME
    connection = None if used_key is None else find_connection_of_key(used_key)
    if connection is not None:
        option = "" if connection.plugin is None else " --plugin"
        return Forbidden(as_called(f"{error} {_AGENT_KEY.format(agent=connection.agent, option=option)}"))
    return Forbidden(as_called(f"{error} {_OTHER_DATABASE.format(file=file)}")) if file.exists() else error


limit_option = click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="The maximum number of rows."
)
as_of_option = click.option("--as-of", metavar="TIME", help="What held then, by what is known now: 2026-03-01T09:00:00Z.")
known_at_option = click.option("--known-at", metavar="TIME", help="What the server would have told then.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, *, yes: bool) -> None:
    """Return when the user confirms on the terminal, or passed --yes; else abort."""
    require_answer(yes=yes)
    if not yes:
        click.confirm(question, abort=True, err=True)


def require_answer(*, yes: bool) -> None:
    """Raise a usage error where nobody can confirm and --yes was not passed."""
    if not yes and not is_interactive():
        raise click.UsageError("Not a terminal: pass --yes to confirm.")


def is_interactive() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin.isatty()


async def in_current_project(call: Callable[[str | None], Awaitable[ApiAnswer]]) -> ApiAnswer:
    """The answer to a call without a project; where the server needs one, with the project of the current folder."""
    try:
        return await call(None)
    except Invalid as error:
        is_unnamed = any(issue.path in _PROJECT_PATHS for issue in error.issues)
        if not is_unnamed or (folder := _find_folder()) is None or (here := read_project(folder)) is None:
            raise
    try:
        return await call(here)
    except NotFound:
        name = sanitize_line(here)
        raise NotFound(
            f"Nothing is recorded of {name} yet. `cmserver projects create {shlex.quote(name)}` makes the project."
        ) from None


_PROJECT_HELP = "Only in this project. [default: that of the current folder; with --json all, as with --all-projects]"


def project_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that `in_chosen_project` takes."""
    project = click.option("--project", metavar="PROJECT", help=_PROJECT_HELP)
    all_projects = click.option("--all-projects", is_flag=True, help="In all projects that the key may see.")
    return project(all_projects(command))


async def in_chosen_project(
    client: ApiClient, call: Callable[[str | None], Awaitable[ApiAnswer]], project: str | None, *, all_projects: bool
) -> ApiAnswer:
    """The answer in the project that is named, else in that of the current folder, else in all; says which, on standard error.

    With --json it is all unless one is named: what programs read does not depend on the folder in which they run.
    """
    if project and all_projects:
        raise click.UsageError("--project and --all-projects exclude each other.")
    folder = None if project or all_projects or client.as_json else _find_folder()
    name = project or (None if folder is None else read_project(folder))
    place = "In all projects."
    if name is None:
        answer = await call(None)
    else:
        called = _name_as_shown(name)
        place = f"In the project {called}.{'' if project else ' --all-projects takes all.'}"
        try:
            answer = await call(name)
        except (NotFound, Invalid) as error:
            if project or (isinstance(error, Invalid) and not any(issue.path in _PROJECT_PATHS for issue in error.issues)):
                raise
            why = f"nothing is recorded of {called}" if isinstance(error, NotFound) else "this folder names none"
            answer, place = await call(None), f"In all projects: {why}."
    if not client.as_json:
        click.echo(place + ("" if client.operator is not None else describe_other_servers(client.address)), err=True)
    return answer


def _name_as_shown(project: str) -> str:
    """The project's canonical id, without credentials of an address; what is none stays as it is."""
    try:
        return canonical_id(project)
    except Invalid:
        return sanitize_line(project)


def _find_folder() -> Path | None:
    """The working folder; None when it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def path_segment(text: str) -> str:
    """The text escaped as one segment of a path: `github.com/acme/orders` is one."""
    return quote(text, safe="")


def present(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that have a value, for the body of a request."""
    return {name: value for name, value in fields.items() if value is not None}
