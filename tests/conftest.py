"""Real PostgreSQL for every test: one server a run, one migrated template, and for each test that asks a clone of it without rows.

By default the embedded PostgreSQL; CMSERVER_TEST_POSTGRES=debian takes Debian's; CMSERVER_TEST_DATABASE_URL takes yours (its
user must be allowed to make databases).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import hypothesis
import msgspec
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cmserver.access import repository as access
from cmserver.access.authenticate import Authenticator
from cmserver.access.keys import manage as manage_keys
from cmserver.access.limits.meter import Meter
from cmserver.access.model import Principal, Project
from cmserver.access.projects import make_project
from cmserver.app import create_app
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from cmserver.base.migrate import installation_secret, migrate
from cmserver.base.notifications import NotificationListener
from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings
from cmserver.base.sql import Query
from cmserver.embedded.files import Binaries, debian_binaries
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.generation.job_notifier import JobNotifier
from cmserver.recall import repository as recall
from tests.databases import DatabaseStock
from tests.environment import clean_environment
from tests.generation.tools import Outbox
from tests.make import Make

# The same examples in each run, so that a failure is about the change that it comes with. No deadline: a machine may be busy.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("exploring", derandomize=False, deadline=None)
hypothesis.settings.load_profile("exploring" if os.environ.get("CMSERVER_TEST_EXPLORE") else "repeatable")


def pytest_configure() -> None:
    clean_environment()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Another PostgreSQL than the embedded one is only for what asks for a database."""
    if os.environ.get("CMSERVER_TEST_POSTGRES"):
        config.hook.pytest_deselected(items=[item for item in items if not _asks_for_database(item)])
        items[:] = filter(_asks_for_database, items)


def _asks_for_database(item: pytest.Item) -> bool:
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else []
    return "server" in fixtures and not item.nodeid.startswith("tests/client/hook/")  # their server records what hooks send


class Server:
    """The PostgreSQL that tests run on: makes databases and drops them."""

    def __init__(self, embedded: EmbeddedPostgres | None, url: str) -> None:
        self.embedded = embedded
        self._url = url

    def url(self, database: str) -> str:
        return self.embedded.url_for(database) if self.embedded else make_conninfo(self._url, dbname=database)

    def superuser_url(self, database: str) -> str:
        return self.embedded.url_for(database, role="postgres") if self.embedded else self.url(database)

    def urls(self, database: str) -> DatabaseUrls:
        """With a login for requests, where the server has one."""
        return self.embedded.urls_for(database) if self.embedded else DatabaseUrls(owner=self.url(database))

    def urls_of(self, url: str) -> DatabaseUrls:
        return self.urls(str(conninfo_to_dict(url)["dbname"]))

    def create(self, name: str, template: str | None = None) -> str:
        if self.embedded:
            self.embedded.create_database(name, template=template)
        else:
            self._run("CREATE DATABASE {} TEMPLATE {}", name, template or "template1")
        return self.url(name)

    @contextmanager
    def lend_encoded(self, encoding: str) -> Generator[str]:
        """The URL of an empty database in that encoding, which its user owns."""
        name = f"cmserver_test_{encoding.lower()}_{uuid4().hex[:8]}"
        url = self.url(name)
        with psycopg.connect(self.superuser_url("postgres"), autocommit=True) as conn:
            statement = "CREATE DATABASE {} OWNER {} ENCODING {} LOCALE 'C' TEMPLATE template0"
            owner = sql.Identifier(str(conninfo_to_dict(url)["user"]))
            conn.execute(sql.SQL(statement).format(sql.Identifier(name), owner, encoding))
        try:
            yield url
        finally:
            self.drop(name)

    def drop(self, name: str) -> None:
        if self.embedded:
            self.embedded.drop_database(name)
        else:
            self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _run(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            conn.execute(sql.SQL(statement).format(*(sql.Identifier(name) for name in names)))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="session")
def server() -> Generator[Server]:
    given = os.environ.get("CMSERVER_TEST_DATABASE_URL")
    if given:
        yield Server(None, given)
        return
    binaries: Binaries | None = None
    if os.environ.get("CMSERVER_TEST_POSTGRES") == "debian":
        binaries = debian_binaries()
        assert binaries is not None, "CMSERVER_TEST_POSTGRES=debian, but /usr/lib/postgresql has no PostgreSQL 15 or newer"
    folder = Path(tempfile.mkdtemp(prefix="cmserver-test-", dir=_in_memory()))
    folder.chmod(0o755)  # as root, PostgreSQL runs as another user, who must get through
    embedded = EmbeddedPostgres(folder / "data", binaries, durable=False)
    embedded.start()
    try:
        yield Server(embedded, embedded.url)
    finally:
        embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _in_memory() -> str | None:
    """Where files are kept in memory, if there is room: a clone takes a fifth of the time that it takes on a disk."""
    memory = "/dev/shm"
    try:
        roomy = shutil.disk_usage(memory).free > 2 << 30
    except OSError:
        return None
    return memory if roomy and os.access(memory, os.W_OK) else None


@pytest.fixture(scope="session")
def template(server: Server) -> Generator[str]:
    """A migrated database to clone."""
    name = f"cmserver_test_template_{uuid4().hex[:8]}"
    asyncio.run(migrate(server.create(name)))
    yield name
    server.drop(name)


@pytest.fixture
def empty_database(server: Server) -> Generator[str]:
    """The URL of a database nobody has migrated."""
    name = f"cmserver_test_{uuid4().hex[:12]}"
    yield server.create(name)
    server.drop(name)


@pytest.fixture(scope="session")
async def stock(server: Server, template: str) -> AsyncGenerator[DatabaseStock]:
    stock = DatabaseStock(server, template)
    yield stock
    await stock.close()


@pytest.fixture
def database(stock: DatabaseStock) -> Generator[str]:
    """The URL of a migrated database without rows."""
    with stock.lend() as url:
        yield url


@pytest.fixture
async def db(stock: DatabaseStock, database: str) -> AsyncGenerator[Db]:
    async with stock.open(database) as opened:
        yield opened


@pytest.fixture(scope="session", autouse=True)
def patient_prompt_search() -> Generator[None]:
    """What a prompt is told may be looked for as long as a busy machine needs; the product gives up after half a second."""
    patient = "SELECT current_setting('statement_timeout') || left(set_config('statement_timeout', '30000', true), 0)"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recall, "LIMIT_STATEMENTS", Query(str, patient))
        yield


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, database_url=database, generation_debounce_seconds=0)


class Person(msgspec.Struct, kw_only=True):
    """Somebody with a key that may do everything in a team."""

    principal: Principal
    key: str
    project: Project

    @property
    def team_id(self) -> UUID:
        return self.principal.team_id

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


class Cast(msgspec.Struct, kw_only=True):
    """Alice owns a team and a project, Bob is her teammate, Charlie is a stranger with a team and a project of his own."""

    alice: Person
    bob: Person
    charlie: Person


@pytest.fixture
async def cast(db: Db) -> Cast:
    return await make_cast(db)


async def make_cast(db: Db) -> Cast:
    blue, red = await make_team(db, "blue"), await make_team(db, "red")
    alice = await make_person(db, blue, "alice", "github.com/acme/orders")
    bob = await make_person(db, blue, "bob", "github.com/acme/orders")
    charlie = await make_person(db, red, "charlie", "github.com/acme/orders")
    return Cast(alice=alice, bob=bob, charlie=charlie)


async def make_team(db: Db, name: str) -> UUID:
    async with db.system() as conn:
        return (await access.insert_team(conn, new_id(), name)).id


async def make_person(db: Db, team_id: UUID, name: str, project: str) -> Person:
    principal, text = await mint(db, team_id, name, scopes=["*"])
    async with db.tenant(team_id) as conn:
        found, _ = await make_project(conn, principal, project)
    return Person(principal=principal, key=text, project=found)


async def mint(db: Db, team_id: UUID, name: str, *, scopes: list[str], project_id: UUID | None = None) -> tuple[Principal, str]:
    """A key and the principal it stands for."""
    async with db.system() as conn:
        key = await manage_keys.mint(conn, team_id, scopes=scopes, actor_id=name, project_id=project_id)
    principal = Principal(
        kind="key", team_id=team_id, project_id=project_id, key_id=key.id, actor_id=name, scopes=frozenset(scopes), team_name=name
    )
    return principal, key.text


async def bound_to(db: Db, person: Person, project: str, *, scopes: Sequence[str] = ("*",)) -> Person:
    """Whoever has a key that is bound to a project of the person's team; the project is made where there is none of that name."""
    async with db.tenant(person.team_id) as conn:
        found, _ = await make_project(conn, person.principal, project)
    principal, text = await mint(db, person.team_id, f"bound to {project}", scopes=list(scopes), project_id=found.id)
    return Person(principal=principal, key=text, project=found)


@pytest.fixture
def hub(database: str) -> NotificationListener:
    """Not listening: enough for what happens within a process."""
    return NotificationListener(database)


@pytest.fixture
async def meter(db: Db) -> AsyncGenerator[Meter]:
    meter = Meter(db)
    yield meter
    await meter.flush()


@pytest.fixture
def authenticate(db: Db, hub: NotificationListener, meter: Meter) -> Authenticator:
    """Remembers nothing unless the hub listens."""
    return Authenticator(db, hub, meter)


@pytest.fixture
def notifier(db: Db, hub: NotificationListener) -> JobNotifier:
    return JobNotifier(db, hub)


@pytest.fixture
def outbox(db: Db, notifier: JobNotifier, cast: Cast) -> Outbox:
    """What Alice's project sends, and workers in the hand for it."""
    return Outbox(db, notifier, cast.alice.principal, cast.alice.project)


@pytest.fixture
async def app(settings: Settings, db: Db, hub: NotificationListener, notifier: JobNotifier) -> AsyncGenerator[AsgiFrame]:
    async with db.system() as conn:
        secret = await installation_secret(conn)
    app = create_app(settings, db, hub, notifier, secret=secret, start=ServerStart(environ={}, reload=lambda: None))
    yield app
    await app.dependencies.get(Meter).flush()


@pytest.fixture
async def client(app: AsgiFrame) -> AsyncGenerator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
    async with httpx.AsyncClient(transport=transport, base_url="http://cmserver") as opened:
        yield opened


@pytest.fixture
def make(db: Db) -> Make:
    return Make(db)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Adds what failed to the file of CMSERVER_TEST_FAILURES, which bin/test shows last."""
    if path := os.environ.get("CMSERVER_TEST_FAILURES"):
        with Path(path).open("a") as file:
            file.writelines(
                f"{report.nodeid} ({report.when})\n{report.longreprtext[-1500:]}\n\n"
                for report in [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
            )
