"""Commands against the real API in this process: only the network between them is left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import click
import httpx
import msgspec
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from cmserver.app import create_app
from cmserver.base import logs
from cmserver.base.db import Db
from cmserver.base.errors import CmserverError
from cmserver.base.migrate import installation_secret
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.cli.exit_codes import exit_code
from cmserver.cli.main import cli
from cmserver.client import server_api
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast

T = TypeVar("T")
URL = "http://cmserver"


class Said(msgspec.Struct, frozen=True):
    """What a command has said, and how it ended."""

    code: int
    out: str
    err: str

    def read(self, type_: type[T]) -> T:
        return msgspec.json.decode(self.out, type=type_)

    def column(self, title: str) -> list[str]:
        """What stands under the title of a table's column that has no spaces in it, nor any column before it."""
        lines = [line.split("  ") for line in self.out.splitlines()]
        rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
        return [row[rows[0].index(title)] for row in rows[1:]]


class Cms(Protocol):
    """Runs `cmserver <words>` with that key and that standard input; without a key as somebody who has none."""

    async def __call__(self, *words: str, key: str | None = None, stdin: str | None = None, **environ: str | None) -> Said: ...


@pytest.fixture
def cms(settings: Settings, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cms:
    @asynccontextmanager
    async def in_process(url: str, key: str) -> AsyncGenerator[httpx.AsyncClient]:
        async with Db(database, size=4) as db:
            async with db.system() as conn:
                secret = await installation_secret(conn)
            hub = NotificationListener(database)
            app = create_app(settings, db, hub, JobNotifier(db, hub), secret=secret)
            transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
            async with httpx.AsyncClient(transport=transport, base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
                yield client

    def configure(_format: str, _level: str) -> None:
        """Loggers of this process are the tests'."""

    monkeypatch.setattr(server_api, "open_http_client", in_process)
    monkeypatch.setattr(logs, "configure", configure)
    basis: dict[str, str | None] = {
        "CMSERVER_DATA_DIR": str(tmp_path),
        "CMSERVER_DATABASE_URL": database,
        "CMSERVER_CONFIG": None,
        "CMSERVER_URL": URL,
        "CMSERVER_KEY_FILE": None,
        "TZ": "UTC",
    }

    def run(words: tuple[str, ...], stdin: str | None, environ: dict[str, str | None]) -> Said:
        with capture_logs():
            result = CliRunner().invoke(cli, list(words), input=stdin, env=environ)
        if isinstance(result.exception, CmserverError):
            return Said(exit_code(result.exception), result.stdout, f"{result.stderr}cmserver: {result.exception}\n")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    async def call(*words: str, key: str | None = None, stdin: str | None = None, **environ: str | None) -> Said:
        return await asyncio.to_thread(run, words, stdin, {**basis, "CMSERVER_KEY": key, **environ})

    return call


def every_command() -> dict[str, click.Command]:
    """Each command that asks the API, by how it is typed."""

    def walk(path: str, command: click.Command) -> dict[str, click.Command]:
        if not isinstance(command, click.Group):
            return {path: command} if any(one.name == "operator" for one in command.params) else {}
        context = click.Context(command)
        inner = {each: command.get_command(context, each) for each in command.list_commands(context)}  # imported when asked for
        return {name: one for each, found in inner.items() if found for name, one in walk(f"{path} {each}".strip(), found).items()}

    return walk("", cli)


Run = Callable[..., Coroutine[None, None, Said]]
"""A command of Alice's."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which no agent is installed, and no server."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "bin").mkdir()
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "GEMINI_CLI_HOME",
        "CLAUDE_MEM_DATA_DIR",
        "COPILOT_HOME",
        "XDG_CONFIG_HOME",
        "CMSERVER_CLIENT_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    return folder


@pytest.fixture
def run(cms: Cms, cast: Cast, home: Path) -> Run:
    """A command as Alice, who may do everything."""

    async def call(*words: str, key: str | None = None, **environ: str | None) -> Said:
        return await cms(*words, key=cast.alice.key if key is None else key, **environ)

    return call
