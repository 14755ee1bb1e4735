"""Behind a real PgBouncer: what works must work whole, and what would not keep teams apart must not start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal
from uuid import uuid4

import httpx
import msgspec
import psycopg
import pytest

from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.ids import new_id
from cmserver.base.sql import Query
from cmserver.base.tenant_role import REQUEST_ROLE
from tests.conftest import Server, make_person, make_team
from tests.house import walk
from tests.make import Make
from tests.process.conftest import Run, passable_folder
from tests.process.pgbouncer import PgBouncer, installed, of_next_release
from tests.process.program import QUICK_LEASE, Program, command, number, wait_for, wait_until_settled
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

Release = Literal["installed", "next"]
COUNTS = Query(int, "SELECT (SELECT count(*) FROM observations) + (SELECT count(*) FROM api_keys) + (SELECT count(*) FROM teams)")


@pytest.fixture(scope="session")
def releases() -> Generator[Callable[[str], list[str]]]:
    """The programs by release; a test is skipped that asks for one which cannot be had."""
    with passable_folder() as unpacked:

        def find(release: str) -> list[str]:
            path = installed() if release == "installed" else of_next_release(unpacked)
            if path is None:
                pytest.skip(
                    "PgBouncer is missing (as root on Debian: apt-get install pgbouncer)"
                    if release == "installed"
                    else "the PgBouncer of Debian's next release cannot be had here"
                )
            return path

        yield find


class Start(msgspec.Struct):
    """Starts a PgBouncer before the test's database."""

    folder: Path
    server: Server
    database: str
    releases: Callable[[str], list[str]]
    started: list[PgBouncer]

    def __call__(self, mode: Literal["session", "transaction"], release: Release = "installed", **settings: object) -> PgBouncer:
        if self.server.embedded is None:
            pytest.skip("PgBouncer logs in without passwords, which only the server that the tests start allows")
        pooler = PgBouncer(self.releases(release), self.folder / f"pgbouncer-{len(self.started)}", self.database, mode, **settings)
        self.started.append(pooler)
        pooler.start()
        return pooler


@pytest.fixture
def start(folder: Path, server: Server, database: str, releases: Callable[[str], list[str]]) -> Generator[Start]:
    start = Start(folder=folder, server=server, database=database, releases=releases, started=[])
    yield start
    for pooler in start.started:
        pooler.kill()


def environment(urls: DatabaseUrls) -> dict[str, str]:
    named = {
        "CMSERVER_DATABASE_URL": urls.owner,
        "CMSERVER_DATABASE_TENANT_URL": urls.tenant,
        "CMSERVER_DATABASE_DIRECT_URL": urls.direct,
        "CMSERVER_DATABASE_POOLING": urls.pooling,
    }
    return {name: value for name, value in named.items() if value}


# ---- what works, works whole

WAYS = [
    ("direct", None),
    ("direct without a login for requests", None),
    ("session", "installed"),
    ("session without a login for requests", "installed"),
    ("transaction", "installed"),
    ("session", "next"),
    ("transaction", "next"),
]


@pytest.fixture(params=WAYS, ids=lambda way: " ".join(filter(None, way)))
def way(request: pytest.FixtureRequest, start: Start, server: Server, database: str) -> tuple[DatabaseUrls, PgBouncer | None]:
    named, release = request.param
    mode, _, without = named.partition(" ")
    tenant = None if without else REQUEST_ROLE
    if mode == "direct":
        urls = server.urls_of(database)
        return (msgspec.structs.replace(urls, tenant=None) if without else urls), None
    pooler = start(mode, release)
    direct = database if mode == "transaction" else None
    return pooler.urls(mode, tenant=tenant, direct=direct), pooler


async def test_ingest_work_search_and_the_walk_of_a_stranger_hold_in_every_mode_and_nothing_is_lost_when_the_pooler_dies(
    run: Run, way: tuple[DatabaseUrls, PgBouncer | None], database: str
):
    urls, pooler = way
    program = run("server", settings={**QUICK_LEASE, **environment(urls)})
    program.wait_until_ready()

    await asyncio.to_thread(wait_for, "a worker", lambda: readiness(program).json().get("workers"))
    await no_row_is_seen_for_an_unknown_team(urls)
    await what_is_written_is_found(program)
    await a_stranger_sees_nothing(program, database)
    # On a busy machine a worker may wait in vain for a connection, and begin anew; it must not lose what it has prepared.
    assert [record for record in program.logged("worker.failed") if "prepared statement" in str(record)] == []
    if pooler is not None:
        await asyncio.to_thread(nothing_acknowledged_is_lost, program, pooler, database)
    assert program.logged("request.failed") == []
    assert program.stop() == 0
    verified = command(program.data_dir.parent, "verify", settings=environment(urls))
    assert verified.returncode == 0, verified.stdout + verified.stderr


def readiness(program: Program) -> httpx.Response:
    return httpx.get(f"{program.url}/readyz", timeout=scaled(20), trust_env=False)


async def no_row_is_seen_for_an_unknown_team(urls: DatabaseUrls) -> None:
    async with Db(urls, size=2) as db:
        for _ in range(20):
            async with db.tenant(new_id()) as conn, db.system() as owner:
                assert await COUNTS.one(owner) > 0
                assert await COUNTS.one(conn) == 0


async def what_is_written_is_found(program: Program) -> None:
    with program.http() as client:
        event = {
            "projectId": "orders",
            "eventType": "tool_use",
            "contentSessionId": "s",
            "payload": {"tool_name": "Write", "tool_input": {"file_path": "/src/pooled.py", "content": "x\n"}},
        }
        answered = client.post("/v1/events", params={"wait": "true"}, json=event)
        assert answered.status_code == 201, answered.text
        hits = wait_for(
            "the observation to be found",
            lambda: client.post("/v1/search", json={"projectId": "orders", "query": "pooled.py"}).json().get("observations"),
        )
        assert "pooled.py" in str(hits)


async def a_stranger_sees_nothing(program: Program, database: str) -> None:
    async with Db(database, size=2) as db, httpx.AsyncClient(base_url=program.url, timeout=scaled(30), trust_env=False) as client:
        alice = await make_person(db, await make_team(db, "blue"), "alice", "github.com/acme/orders")
        charlie = await make_person(db, await make_team(db, "red"), "charlie", "github.com/acme/orders")
        own = await walk.furnish(client, db, Make(db), charlie, "private")
        alices = await walk.furnish(client, db, Make(db), alice, walk.MARK)
        await walk.set_apart(db, alice.team_id)
        stranger, herself = walk.Walker(client, charlie.key, own.own), walk.Walker(client, alice.key, alices.own)
        for stop in walk.stops():
            if stop.reads and stop.path not in walk.ENDLESS:
                for slot in [None, *stop.slots]:
                    answer = await walk.ask(stranger, stop, slot, alices)
                    assert walk.shown(answer, alices) == [], f"{stop.name} {slot}"
        mine = [await herself.send(stop) for stop in walk.stops() if stop.name == "GET /v1/projects"]
        assert any(walk.MARK in answer.body for answer in mine)


def nothing_acknowledged_is_lost(program: Program, pooler: PgBouncer, database: str) -> None:
    """Several clients send without pause while the pooler is killed and started again, twice."""
    acknowledged: list[str] = []
    over = threading.Event()

    def send(name: str) -> None:
        with program.http() as client:
            while not over.is_set():
                key = uuid4().hex
                answered = client.post(
                    "/v1/events",
                    json={
                        "projectId": "load",
                        "eventType": "tool_use",
                        "contentSessionId": name,
                        "sourceEventId": key,
                        "payload": {"tool_name": "Read", "tool_input": {"file_path": f"/src/{key}.py"}},
                    },
                )
                assert answered.status_code in {201, 503}, answered.text
                if answered.status_code == 201:
                    acknowledged.append(key)

    def more(than: int) -> None:
        wait_for("events to be taken", lambda: len(acknowledged) >= than + 50)

    senders = [threading.Thread(target=send, args=[f"session-{place}"]) for place in range(4)]
    for sender in senders:
        sender.start()
    try:
        for _ in range(2):
            more(len(acknowledged))
            pooler.kill()
            wait_for("a refusal", lambda: readiness(program).status_code == 503)
            pooler.start()
        more(len(acknowledged))
    finally:
        over.set()
        for sender in senders:
            sender.join()
    with psycopg.connect(database) as conn:
        stored = {key for (key,) in conn.execute("SELECT source_event_id FROM agent_events WHERE source_event_id IS NOT NULL")}
    assert set(acknowledged) - stored == set()
    wait_until_settled(database)
    assert number(database, "SELECT count(*) FROM observation_generation_jobs WHERE status <> 'completed'") == 0
    wait_for("the server to be ready again", lambda: readiness(program).status_code == 200)


# ---- what would not keep teams apart does not start


def refusal(folder: Path, urls: DatabaseUrls) -> str:
    ended = command(folder, "run", settings={**environment(urls), "CMSERVER_DATABASE_WAIT_SECONDS": "1"})
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert ended.stdout == ""
    return "\n".join(line for line in ended.stderr.splitlines() if not line.startswith("{"))


async def no_tenant_transaction_begins(urls: DatabaseUrls) -> None:
    """Also where nobody looked at the start: each connection and each transaction is looked at."""
    async with Db(urls, size=2) as db:
        with pytest.raises(Exception, match=r"teams would not be kept apart|does not bind|cannot be reached"):
            async with db.tenant(new_id()) as conn:
                await COUNTS.one(conn)


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("release", ["installed", "next"])
async def test_a_pooler_that_drops_startup_options_is_refused_and_shows_no_row(
    folder: Path, start: Start, mode: Literal["session", "transaction"], release: Release
):
    """The attack: the tenant's role was such an option, and without it every request was the owner's."""
    pooler = start(mode, release, ignore_startup_parameters="extra_float_digits,options")
    urls = pooler.urls("none", tenant=None)

    assert "CMSERVER_DATABASE_POOLING" in refusal(folder, urls)
    await no_tenant_transaction_begins(urls)


async def test_a_session_pooler_that_is_none_is_refused(folder: Path, start: Start):
    pooler = start("transaction")
    urls = pooler.urls("session", tenant=REQUEST_ROLE)

    assert "CMSERVER_DATABASE_POOLING" in refusal(folder, urls)


async def test_no_row_is_seen_where_the_role_is_lost_between_transactions(start: Start, database: str):
    """SET ROLE behind transaction pooling passes the look at the new connection; the transactions are the owner's all the same."""
    urls = start("transaction").urls("session", tenant=None)
    team = new_id()
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("INSERT INTO teams (id, name) VALUES (%s, 'blue')", [team])
    seen: list[int] = []
    async with Db(urls, size=4) as db:

        async def look() -> None:
            try:
                async with db.tenant(new_id()) as conn:
                    seen.append(await COUNTS.one(conn))
            except Exception:  # noqa: BLE001 - refused, which is right
                seen.append(0)

        for _ in range(5):
            await asyncio.gather(*(look() for _ in range(4)))

    assert set(seen) == {0}


async def test_a_transaction_pooler_needs_a_login_for_requests_and_the_sentence_says_how(folder: Path, start: Start, database: str):
    urls = start("transaction").urls("transaction", tenant=None, direct=database)

    output = refusal(folder, urls)

    assert "CREATE ROLE cmserver_request LOGIN" in output
    assert "GRANT cmserver_tenant TO cmserver_request" in output
    await no_tenant_transaction_begins(urls)


async def test_a_direct_url_that_leads_to_the_pooler_is_refused(folder: Path, start: Start):
    pooler = start("transaction")
    urls = pooler.urls("transaction", tenant=REQUEST_ROLE, direct=pooler.url("cmserver"))

    assert "CMSERVER_DATABASE_DIRECT_URL" in refusal(folder, urls)


@pytest.mark.parametrize("user", ["cmserver", "postgres"], ids=["the owner", "a superuser"])
@pytest.mark.parametrize("mode", ["none", "session", "transaction"])
async def test_a_login_for_requests_that_no_policy_binds_is_refused(
    folder: Path, start: Start, server: Server, database: str, user: str, mode: Literal["none", "session", "transaction"]
):
    if mode == "none":
        assert server.embedded is not None
        name = str(server.urls_of(database).owner.split("@/")[1].split("?")[0])
        urls = DatabaseUrls(owner=database, tenant=server.embedded.url_for(name, role=user))
    else:
        pooler = start(mode)
        urls = pooler.urls(mode, tenant=user, direct=database)

    assert "cmserver_request" in refusal(folder, urls)
    await no_tenant_transaction_begins(urls)
