"""Where benchmarks take place: an embedded PostgreSQL with its default durability, fresh databases, and the real program."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from uuid import UUID

import msgspec
import psycopg

from cmserver.access import repository as access
from cmserver.access.keys import manage as manage_keys
from cmserver.access.model import Principal
from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.migrate import migrate
from cmserver.embedded.files import Binaries
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.sessions.model import NewSession
from cmserver.sessions.write import find_or_make
from tests.bench.events import session_name
from tests.bench.load import ROOT, Http, Sql

SESSIONS = 64
READY_SECONDS = 180.0
STOPPED_SECONDS = 20.0
_TEMPLATE = "bench_template"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A migrated database with one team, a key, a project and its sessions."""

    url: str
    superuser_url: str
    team_id: UUID
    key_id: UUID
    key: str
    project_id: UUID
    sessions: list[UUID]

    def http(self, *ports: int, connections: int, seconds: float, batch: int = 1, per_second: float | None = None) -> Http:
        return Http(
            project_id=self.project_id,
            sessions=self.sessions,
            connections=connections,
            seconds=seconds,
            batch=batch,
            ports=ports,
            key=self.key,
            per_second=per_second,
        )

    def sql(
        self, *, connections: int, seconds: float, batch: int = 1, requests: int | None = None, delay_seconds: float = 2.0
    ) -> Sql:
        """With `requests` it sends so many from a cold start and counts all of them."""
        return Sql(
            project_id=self.project_id,
            sessions=self.sessions,
            connections=connections,
            seconds=seconds,
            warm_seconds=0.2 if requests is None else 0.0,
            batch=batch,
            requests=sys.maxsize if requests is None else requests,
            url=self.url,
            team_id=self.team_id,
            key_id=self.key_id,
            delay_seconds=delay_seconds,
        )


class World:
    """One PostgreSQL in a temporary folder."""

    def __init__(self, folder: Path, embedded: EmbeddedPostgres) -> None:
        self.folder = folder
        self.embedded = embedded
        self._numbers = count(1)

    @property
    def postmaster(self) -> int:
        """The process of PostgreSQL."""
        return int((self.embedded.cluster / "postmaster.pid").read_text().splitlines()[0])

    def place(self) -> Place:
        """A fresh one, cloned from a migrated database."""
        name = f"bench_{next(self._numbers)}"
        self.embedded.create_database(name, template=_TEMPLATE)
        url, superuser_url = self.embedded.url_for(name), self.embedded.url_for(name, role="postgres")
        return asyncio.run(_furnished(url, superuser_url))

    def free_folder(self) -> Path:
        return self.folder / f"data-{next(self._numbers)}"


@contextmanager
def world(*, durable: bool = True, binaries: Binaries | None = None, **settings: str) -> Generator[World]:
    """A PostgreSQL of its own, gone after the block; of these binaries, and with these settings, if they are named."""
    with temporary_folder() as folder:
        embedded = EmbeddedPostgres(folder / "data", durable=durable, binaries=binaries, settings=settings)
        embedded.start()
        try:
            embedded.create_database(_TEMPLATE)
            asyncio.run(migrate(embedded.url_for(_TEMPLATE)))
            yield World(folder, embedded)
        finally:
            embedded.stop()


@contextmanager
def temporary_folder() -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="cmserver-bench-"))
    folder.chmod(0o755)  # as root, PostgreSQL runs as another user, who must get through
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _furnished(url: str, superuser_url: str) -> Place:
    async with Db(url, size=2) as db:
        async with db.system() as conn:
            team = await access.insert_team(conn, new_id(), "bench")
            key = await manage_keys.mint(conn, team.id, scopes=["*"], actor_id="bench")
        principal = Principal(
            kind="key",
            team_id=team.id,
            project_id=None,
            key_id=key.id,
            actor_id="bench",
            scopes=frozenset({"*"}),
            team_name=team.name,
        )
        async with db.tenant(team.id) as conn:
            project, _ = await make_project(conn, principal, "github.com/acme/orders")
            found = [
                await find_or_make(
                    conn,
                    team.id,
                    project.id,
                    NewSession(external_session_id=session_name(place), content_session_id=session_name(place)),
                )
                for place in range(SESSIONS)
            ]
    return Place(
        url=url,
        superuser_url=superuser_url,
        team_id=team.id,
        key_id=key.id,
        key=key.text,
        project_id=project.id,
        sessions=[session.id for session, _ in found],
    )


# -- the program


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings by their names in the environment."""
    return {("" if name.endswith("_api_key") else "CMSERVER_") + name.upper(): str(it) for name, it in settings.items()}


@contextmanager
def program(
    command: Sequence[str], settings: Mapping[str, object], data_dir: Path, *, port: int | None, tree: Path = ROOT
) -> Generator[subprocess.Popen[bytes]]:
    """The real program of that tree, ready to answer on `port` (None: it has none, and is not waited for); stopped after the
    block.
    """
    names = {name: value for name, value in os.environ.items() if not name.startswith(("CMSERVER_", "CLAUDE_MEM_"))}
    given = {**settings, "data_dir": data_dir, **({} if port is None else {"port": port})}
    env = {**names, **environment(given)}
    log = data_dir.with_name(f"{data_dir.name}.log")
    with log.open("ab") as output, subprocess.Popen(command, cwd=tree, env=env, stdout=output, stderr=output) as process:
        try:
            if port is not None:
                wait_until_ready(process, port, log)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOPPED_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def role(world: World, place: Place, name: str, **settings: object) -> Generator[int]:
    """`cmserver run --role` on that database; its port, or 0 for a worker."""
    port = None if name == "worker" else free_port()
    command = [sys.executable, "-m", "cmserver", "run", "--role", name]
    given = {"database_url": place.url, "log_format": "json", **settings}
    with program(command, given, world.free_folder(), port=port):
        yield port or 0


def wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """RuntimeError with the end of its log when it does not."""
    end = time.monotonic() + READY_SECONDS
    while not _is_ready(port):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"cmserver did not become ready. It said:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.005)


def _is_ready(port: int) -> bool:
    """One question with as little as possible around it: it is asked often while the program starts."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as asked:
            asked.sendall(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return asked.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def value(url: str, statement: str, *params: object) -> object:
    """The first column of the first row."""
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute(statement, params).fetchone()  # pyright: ignore[reportArgumentType, reportCallIssue]
        return None if row is None else row[0]
