"""What all commands that ask the API share: their options, whom they ask and as whom, and how the answer is shown."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote
from uuid import UUID

import click
import httpx
import msgspec
from msgspec import structs

from cmserver.access import keys
from cmserver.base import credentials, logs
from cmserver.base.configuration import BadSetting, load
from cmserver.base.settings import Settings
from cmserver.cli.client import Answer, Api
from cmserver.cli.database import database_url
from cmserver.cli.exits import Unreachable
from cmserver.cli.operator import Operator, as_operator

T = TypeVar("T")
Act = Callable[..., Coroutine[None, None, None]]

LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_NO_KEY = "There is no key. Name one with CMSERVER_KEY_FILE, CMSERVER_KEY or --key."
_WITHOUT_KEY = "Whoever holds the database needs neither server nor key: --operator --team NAME."
_NO_TEAM = "Say for which team: --operator --team NAME. `cmserver teams list --operator` shows all."


class NoKey(BadSetting):
    """Nothing says with which key the server is asked."""


class Talk:
    """A command's conversation with the server."""

    def __init__(self, api: Api, data_dir: Path, *, as_json: bool, operator: Operator | None) -> None:
        self.api = api
        self._data_dir = data_dir
        self.as_json = as_json
        self.operator = operator
        """Set when the database is asked directly, without a key."""

    def tell(self, answer: Answer, type_: type[T], words: Callable[[T], str]) -> None:
        """The answer on standard output: as it is for programs, in words for people."""
        if self.as_json:
            click.echo(msgspec.json.format(answer.raw).decode())
        else:
            click.echo(words(answer.read(type_)))

    def keep(self, old_key: UUID, key: str) -> None:
        """Put a key into the data folder's credentials file where the old one stands, so that commands go on working."""
        known = credentials.read(self._data_dir)
        if known is not None and keys.parse(known.key)[0] == old_key:
            kept = credentials.write(self._data_dir, structs.replace(known, key=key))
            click.echo(f"The new key is in {kept}, in the place of the old one.", err=True)

    async def for_team(self, team: str | None) -> None:
        """The operator acts for the team that a command's argument names, unless --team has named one."""
        if self.operator is None or self.operator.acts:
            return
        if team is None:
            raise click.UsageError(_NO_TEAM)
        await self.operator.act_for(team)


_OPTIONS = (
    click.option("--url", envvar="CMSERVER_URL", show_envvar=True, help="The server; else that of the data folder's credentials."),
    click.option(
        "--key",
        envvar="CMSERVER_KEY",
        show_envvar=True,
        help="The key; better in a file that CMSERVER_KEY_FILE names. Else that of the data folder's credentials.",
    ),
    click.option("--operator", is_flag=True, help="Ask the database directly, without server and key. Needs --team."),
    click.option("--team", "operator_team", metavar="NAME", help="The team that the operator acts for, by name or id."),
    click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings."),
    click.option("--json", "as_json", is_flag=True, help="The API's answer as it is, for programs."),
)


def talks(act: Act) -> Callable[..., None]:
    """Make a command of a coroutine: it gets a `Talk` first, then its own parameters. Stands last, above `async def`."""
    return _command(act, team_needed=True)


def talks_of_teams(act: Act) -> Callable[..., None]:
    """Like `talks`, for commands that name a team themselves: the operator need not say --team."""
    return _command(act, team_needed=False)


def _command(act: Act, *, team_needed: bool) -> Callable[..., None]:
    @functools.wraps(act)
    def command(
        url: str | None,
        key: str | None,
        operator_team: str | None,
        config_file: Path | None,
        *,
        operator: bool,
        as_json: bool,
        **values: object,
    ) -> None:
        if operator_team and not operator:
            raise click.UsageError("--team goes with --operator; a key has its own team.")
        if operator and team_needed and not operator_team:
            raise click.UsageError(_NO_TEAM)
        settings = load(os.environ, config_file=config_file).settings

        async def ask() -> None:
            try:
                async with over_http(*server_of(settings, url, key)) as client:
                    await act(Talk(Api(client), settings.data_dir, as_json=as_json, operator=None), **values)
            except (NoKey, Unreachable) as error:
                raise type(error)(f"{error} {_WITHOUT_KEY}") from error

        async def ask_database(database: str) -> None:
            async with as_operator(settings, database) as (client, who):
                talk = Talk(Api(client), settings.data_dir, as_json=as_json, operator=who)
                if operator_team:
                    await who.act_for(operator_team)
                await act(talk, **values)

        if operator:
            logs.configure(settings.log_format, "warning")  # the API runs in this process: what it logs is no answer
            with database_url(settings) as database:
                asyncio.run(ask_database(database))
        else:
            asyncio.run(ask())

    made: Callable[..., None] = command
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


@asynccontextmanager
async def over_http(url: str, key: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the server at that address."""
    headers = {"Authorization": f"Bearer {key}"}
    try:
        here = httpx.URL(url).host in LOOPBACK
        client = httpx.AsyncClient(base_url=url, headers=headers, trust_env=not here)  # no proxy stands before this machine
    except (httpx.InvalidURL, UnicodeEncodeError) as error:
        raise BadSetting(f"The server's address or the key cannot be used: {error}.") from error
    async with client:
        yield client


def server_of(settings: Settings, url: str | None, key: str | None) -> tuple[str, str]:
    """Its address and the key. The key of the credentials file is sent to the server of that file only."""
    key = key or key_of_file()
    known = None if url and key else credentials.read(settings.data_dir)
    address = (url or (known.url if known else f"http://127.0.0.1:{settings.port}")).rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise BadSetting(f"The server's address is {address!r}: a URL that begins with http:// or https:// is expected.")
    if key is None and known is not None and known.url.rstrip("/") == address:
        key = known.key
    if key is None:
        raise NoKey(_NO_KEY)
    return address, key


def key_of_file() -> str | None:
    """The key in the file that CMSERVER_KEY_FILE names."""
    path = os.environ.get("CMSERVER_KEY_FILE")
    if not path:
        return None
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"CMSERVER_KEY_FILE names {path}, which cannot be read ({type(error).__name__}).") from None
    if not key:
        raise BadSetting(f"CMSERVER_KEY_FILE names {path}, which is empty: write the key into it.")
    return key


# -- what several commands need

limit_option = click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="The most to show.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")


def confirm(question: str, *, yes: bool) -> None:
    """Go on only when a person says so, or has said so with --yes."""
    if yes:
        return
    if not is_a_person():
        raise click.UsageError("Nobody is there to ask whether it is meant: say --yes.")
    click.confirm(question, abort=True, err=True)


def is_a_person() -> bool:
    """Whether somebody can answer a question."""
    return sys.stdin.isatty()


def segment(text: str) -> str:
    """A part of a path: `github.com/acme/orders` is one."""
    return quote(text, safe="")


def more(next_cursor: str | None) -> None:
    """Said beside a list that goes on."""
    if next_cursor is not None:
        click.echo("There are more: --limit shows them.", err=True)
