"""`cmserver backup` and `cmserver restore`, with the real program: round trips, a busy server, kills, and what is refused."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from cmserver.base import credentials
from cmserver.embedded.postgres import EmbeddedPostgres
from cmserver.ops.backup.archive import open_backup
from tests.process.conftest import Run
from tests.process.postgres_nodes import Node
from tests.process.program import Program, command, embedded_database, environment, number, observations, rows, wait_for

pytestmark = pytest.mark.slow

PROJECT = "/home/alice/src/orders"
TEAM_TABLES = ("projects", "observations", "agent_events", "api_keys", "audit_log", "observation_generation_jobs")


def cmserver(folder: Path, *words: str, code: int = 0, settings: Mapping[str, str] | None = None) -> str:
    """What `cmserver <words>` says when it has exited with that code."""
    ended = command(folder, *words, settings=settings)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def elsewhere(folder: Path, name: str = "restored") -> dict[str, str]:
    return {"CMSERVER_DATA_DIR": str(folder / name)}


def remember(program: Program, count: int, prefix: str = "Bound the cache of") -> None:
    with program.http() as client:
        assert client.post("/v1/projects", json={"canonicalId": PROJECT}).is_success
        for place in range(count):
            body = {"projectId": PROJECT, "title": f"{prefix} {place} orders"}
            assert client.post("/v1/observations", json=body).is_success


def remembered(program: Program) -> list[tuple[int, str]]:
    with program.http() as client:
        return [(observation.number, observation.content) for observation in observations(client, PROJECT)]


def visible(url: str, team: object) -> dict[str, int]:
    """Rows of each table that the tenant's role sees as that team."""
    with psycopg.connect(url, options="-c role=cmserver_tenant") as conn:
        conn.execute("SELECT set_config('cmserver.team_id', %s, false)", [str(team)])
        counts: dict[str, int] = {}
        for table in TEAM_TABLES:
            row = conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
            counts[table] = row[0] if row else 0
        return counts


@pytest.fixture
def filled(run: Run, folder: Path) -> Program:
    """A running server with a team, a key and some observations, one of two teams."""
    program = run("server")
    program.wait_until_ready()
    remember(program, 5)
    with program.http() as client:
        assert client.post("/v1/teams", json={"name": "guests"}).is_success
    return program


def run_in(folder: Path, name: str, settings: Mapping[str, str]) -> Program:
    """A server whose data folder is another one than the test's."""
    within = folder / f"of-{name}"
    within.mkdir(mode=0o711)
    return Program(within, name, settings=settings, user=None)


@contextmanager
def embedded_database_of(data_dir: Path) -> Generator[str]:
    embedded = EmbeddedPostgres(data_dir, durable=False)
    embedded.start()
    try:
        yield embedded.url
    finally:
        embedded.stop()


def same_server(folder: Path, name: str, settings: Mapping[str, str], before: list[tuple[int, str]], key: str) -> None:
    """It knows the same, lets the same key in, and goes on counting where the other had stopped."""
    program = run_in(folder, name, settings)
    program.data_dir = Path(settings["CMSERVER_DATA_DIR"])
    try:
        program.wait_until_ready()
        assert program.key == key
        assert remembered(program) == before
        remember(program, 1, "Added after the restore,")
        after = remembered(program)
        assert after[1:] == before
        assert after[0][0] > before[0][0]
        assert "First start" not in program.output
    finally:
        program.end()


def test_from_an_embedded_database_to_another_while_the_server_runs(filled: Program, folder: Path):
    file = folder / "one.backup"
    before, key = remembered(filled), filled.key

    cmserver(folder, "backup", "--file", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    output = cmserver(folder, "restore", str(file), settings=elsewhere(folder))

    assert "The sums hold" in output
    assert {path.name for path in (folder / "restored").iterdir()} == {
        "credentials",
        "lock",
        next(filled.data_dir.glob("pg*")).name,
    }
    same_server(folder, "second", elsewhere(folder), before, key)
    cmserver(folder, "verify", settings=elsewhere(folder))
    assert remembered(filled) == before


def test_a_server_that_does_not_run_is_backed_up_too_and_stays_stopped(filled: Program, folder: Path):
    before, key = remembered(filled), filled.key
    assert filled.stop() == 0

    cmserver(folder, "backup", "--file", str(folder / "one.backup"))

    assert list(filled.data_dir.glob("pg*/postmaster.pid")) == []
    cmserver(folder, "restore", str(folder / "one.backup"), settings=elsewhere(folder))
    same_server(folder, "second", elsewhere(folder), before, key)


def test_from_an_embedded_database_to_ones_own_and_back(filled: Program, folder: Path, empty_database: str):
    own = {"CMSERVER_DATABASE_URL": empty_database, **elsewhere(folder, "own")}
    before, key = remembered(filled), filled.key
    cmserver(folder, "backup", "--file", str(folder / "one.backup"))

    cmserver(folder, "restore", str(folder / "one.backup"), settings=own)

    same_server(folder, "own-server", own, before, key)
    (ours, theirs) = rows(empty_database, "SELECT id FROM teams ORDER BY name")
    assert visible(empty_database, ours["id"])["observations"] > 0
    assert visible(empty_database, theirs["id"])["observations"] == 0
    assert visible(empty_database, theirs["id"])["api_keys"] <= 1
    cmserver(folder, "backup", "--file", str(folder / "two.backup"), settings=own)
    cmserver(folder, "restore", str(folder / "two.backup"), settings=elsewhere(folder, "back"))
    with embedded_database_of(folder / "back") as url:
        assert number(url, "SELECT count(*) FROM observations") == len(before) + 1
        (again,) = rows(url, "SELECT id FROM teams WHERE name = 'default'")
        assert again["id"] == ours["id"]
        assert visible(url, ours["id"]) == visible(empty_database, ours["id"])
        assert visible(url, theirs["id"]) == visible(empty_database, theirs["id"])
        assert sum(visible(url, "00000000-0000-0000-0000-000000000000").values()) == 0


def test_whatever_was_acknowledged_before_a_backup_began_is_in_it(filled: Program, folder: Path):
    acknowledged: list[str] = []
    stop = threading.Event()

    def write() -> None:
        with filled.http() as client:
            place = 0
            while not stop.is_set():
                event = {"projectId": PROJECT, "eventType": "note", "payload": {"place": place}, "sourceEventId": f"event-{place}"}
                answer = client.post("/v1/events", json=event)
                if answer.is_success:
                    acknowledged.append(answer.json()["event"]["id"])
                place += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_for("some events", lambda: len(acknowledged) > 50)
        before = list(acknowledged)
        cmserver(folder, "backup", "--file", str(folder / "one.backup"))
        meanwhile = len(acknowledged) - len(before)
    finally:
        stop.set()
        writer.join()

    assert meanwhile > 0
    cmserver(folder, "restore", str(folder / "one.backup"), settings=elsewhere(folder))
    with embedded_database_of(folder / "restored") as url:
        assert number(url, "SELECT count(*) FROM agent_events WHERE id = ANY(%(ids)s::uuid[])", ids=before) == len(before)


POINTS: dict[str, Callable[[Path], bool]] = {
    "initdb": lambda target: any(target.glob("restoring-*/pg*.new-*")),
    "loading": lambda target: any(target.glob("restoring-*/database.dump")),
    "at its end": lambda target: (target / "credentials.pending").exists() or any(target.glob("pg[0-9][0-9]")),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_restore_that_was_killed_can_be_repeated(filled: Program, folder: Path, point: str):
    before, key = remembered(filled), filled.key
    cmserver(folder, "backup", "--file", str(folder / "one.backup"))
    target = folder / "restored"
    with (folder / "killed.out").open("wb") as out:
        restoring = subprocess.Popen(
            [sys.executable, "-m", "cmserver", "restore", str(folder / "one.backup")],
            env=environment(folder, elsewhere(folder)), stdout=out, stderr=out,
        )  # fmt: skip
    wait_for("the moment", lambda: POINTS[point](target))
    restoring.send_signal(signal.SIGKILL)
    restoring.wait()

    if not any(target.glob("pg[0-9][0-9]")):
        assert not (target / "credentials").exists()
        cmserver(folder, "restore", str(folder / "one.backup"), settings=elsewhere(folder))
        assert list(target.glob("restoring-*")) == []
    same_server(folder, "second", elsewhere(folder), before, key)
    assert not (target / "credentials.pending").exists()


def test_a_restore_into_ones_own_database_that_was_killed_leaves_it_empty(filled: Program, folder: Path, empty_database: str):
    filled.stop()
    cmserver(folder, "backup", "--file", str(folder / "one.backup"))
    own = {"CMSERVER_DATABASE_URL": empty_database, **elsewhere(folder, "own")}
    loading = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cmserver backup'"
    with (folder / "killed.out").open("wb") as out:
        restoring = subprocess.Popen(
            [sys.executable, "-m", "cmserver", "restore", str(folder / "one.backup")],
            env=environment(folder, own), stdout=out, stderr=out,
        )  # fmt: skip
    wait_for("the load", lambda: number(empty_database, loading) > 0)
    restoring.send_signal(signal.SIGKILL)
    restoring.wait()
    wait_for("the end of psql", lambda: number(empty_database, loading) == 0)

    assert number(empty_database, "SELECT count(*) FROM pg_class WHERE relname = 'observations'") == 0
    cmserver(folder, "restore", str(folder / "one.backup"), settings=own)
    assert "not empty" in cmserver(folder, "restore", str(folder / "one.backup"), settings=own, code=1)
    assert number(empty_database, "SELECT count(*) FROM observations") > 0


def test_a_target_that_is_not_empty_is_left_alone(filled: Program, folder: Path, database: str):
    cmserver(folder, "backup", "--file", str(folder / "one.backup"))
    own = {"CMSERVER_DATABASE_URL": database, **elsewhere(folder, "own")}

    assert "using the data folder" in cmserver(folder, "restore", str(folder / "one.backup"), code=5)
    filled.stop()
    assert "not empty" in cmserver(folder, "restore", str(folder / "one.backup"), code=1)
    cmserver(folder, "restore", str(folder / "one.backup"), settings=own, code=1)

    with embedded_database(folder) as url:
        assert number(url, "SELECT count(*) FROM observations") == 5
    assert number(database, "SELECT count(*) FROM schema_migrations") > 0
    theirs = credentials.Credentials(url="https://elsewhere.example", key="cms_of_another", team="x")
    (folder / "third").mkdir()
    credentials.write(folder / "third", theirs)
    assert "not empty" in cmserver(folder, "restore", str(folder / "one.backup"), settings=elsewhere(folder, "third"), code=1)
    assert credentials.read(folder / "third") == theirs


def test_a_database_that_is_served_is_not_restored_into(run: Run, folder: Path, database: str):
    program = run("server", settings={"CMSERVER_DATABASE_URL": database})
    program.wait_until_ready()
    own = {"CMSERVER_DATABASE_URL": database}
    cmserver(folder, "backup", "--file", str(folder / "one.backup"), settings=own)

    assert "Stop it first" in cmserver(folder, "restore", str(folder / "one.backup"), settings=own, code=5)


def test_a_backup_is_replaced_only_when_that_is_said(filled: Program, folder: Path):
    file = folder / "one.backup"
    file.write_text("precious")

    assert "--force" in cmserver(folder, "backup", "--file", str(file), code=1)
    assert file.read_text() == "precious"
    cmserver(folder, "backup", "--force", "--file", str(file))

    assert zipfile.is_zipfile(file)
    assert sorted(path.name for path in folder.iterdir() if ".backup" in path.name) == ["one.backup"]
    assert "holds no database" in cmserver(
        folder, "backup", "--file", str(folder / "two"), settings=elsewhere(folder, "nothing"), code=1
    )
    assert not (folder / "nothing").exists()


@pytest.fixture
def backup(filled: Program, folder: Path) -> Path:
    cmserver(folder, "backup", "--file", str(folder / "one.backup"))
    filled.stop()
    return folder / "one.backup"


def rewritten(file: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    """The backup with another content of one of its files, and checksums of the zip that fit."""
    other = file.with_name("changed.backup")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(other, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            new.writestr(info, change(content) if info.filename == name else content)
    return other


def with_manifest(file: Path, **fields: object) -> Path:
    return rewritten(file, "manifest.json", lambda content: json.dumps({**json.loads(content), **fields}).encode())


def test_a_damaged_or_strange_file_is_named_and_nothing_is_restored(backup: Path, folder: Path):
    content = backup.read_bytes()
    middle = len(content) // 2
    cut, flipped, none = (folder / f"{name}.backup" for name in ("cut", "flipped", "none"))
    cut.write_bytes(content[:-100])
    flipped.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    none.write_text("no backup")
    shortened = rewritten(backup, "database.dump", lambda dump: dump[:-5000])
    target = elsewhere(folder)

    for file in (cut, flipped, none, folder / "missing", shortened):
        assert str(file) in cmserver(folder, "restore", str(file), settings=target, code=1)
    cmserver(folder, "restore", str(with_manifest(backup, schema=9999)), settings=target, code=4)
    cmserver(folder, "restore", str(with_manifest(backup, format=3)), settings=target, code=1)
    assert "30856421" in cmserver(folder, "restore", str(with_manifest(backup, format=1, schema=53)), settings=target, code=4)
    miscounted = json.loads(zipfile.ZipFile(backup).read("manifest.json"))["counts"] | {"observations": 4}
    assert "numbers of rows" in cmserver(folder, "restore", str(with_manifest(backup, counts=miscounted)), settings=target, code=1)

    assert [path.name for path in (folder / "restored").iterdir() if path.name != "lock"] == []
    cmserver(folder, "restore", str(backup), settings=target)


def test_a_failed_restore_leaves_ones_own_database_empty(backup: Path, folder: Path, empty_database: str):
    manifest = json.loads(zipfile.ZipFile(backup).read("manifest.json"))
    own = {"CMSERVER_DATABASE_URL": empty_database, **elsewhere(folder, "own")}
    miscounted = with_manifest(backup, counts=manifest["counts"] | {"observations": 4})

    assert "numbers of rows" in cmserver(folder, "restore", str(miscounted), settings=own, code=1)
    role = with_manifest(backup, roles=["cmserver_tenant", "nobody_has_made_this_role"])
    assert "nobody_has_made_this_role" in cmserver(folder, "restore", str(role), settings=own, code=1)

    assert not (folder / "own" / "credentials").exists()
    assert "The sums hold" in cmserver(folder, "restore", str(backup), settings=own)
    shutil.rmtree(folder / "own")


def test_the_end_of_a_restore_says_that_the_key_of_before_is_refused(backup: Path, folder: Path, empty_database: str):
    own = {"CMSERVER_DATABASE_URL": empty_database, **elsewhere(folder, "own")}
    (folder / "own").mkdir()
    other = credentials.Credentials(url="http://127.0.0.1:1", key=f"cms_{'0' * 32}_of_another", team="blue")
    credentials.write(folder / "own", other)

    said = cmserver(folder, "restore", str(backup), settings=own)

    assert "keys create --operator --team blue" in said
    shutil.rmtree(folder / "own")


def test_a_backup_of_a_server_in_recovery_has_not_seen_what_was_open(nodes: tuple[Node, Node], folder: Path):
    """While it recovers, the text of a snapshot does not name open transactions: an erasure of one would not be repeated."""
    primary, standby = ({"CMSERVER_DATABASE_URL": f"postgresql://cmserver@{node.host}/cmserver"} for node in nodes)
    cmserver(folder, "upgrade", settings=primary)
    file = folder / "standby.backup"
    with psycopg.connect(f"postgresql://postgres@{nodes[0].host}/cmserver") as conn:
        ((transaction,),) = conn.execute(
            "INSERT INTO teams (id, name) VALUES (gen_random_uuid(), 'open') RETURNING pg_current_xact_id()::text"
        )
        nodes[0].execute("CREATE TABLE later ()")

        cmserver(folder, "backup", "--file", str(file), settings=standby)

        with open_backup(file) as backup:
            seen = "SELECT pg_visible_in_snapshot(%s::xid8, %s::pg_snapshot)"
            assert conn.execute(seen, [transaction, backup.manifest.snapshot]).fetchone() == (False,)
