"""Two PostgreSQL nodes, the second a standby of the first, made of the binaries that the embedded database uses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import psycopg

from cmserver.embedded.files import copy_binaries, find_binaries, system_user
from tests.process.program import wait_for

STANDBY = "standby"
_SETTINGS = """
listen_addresses = '127.0.0.1'
max_wal_senders = 5
wal_level = replica
hot_standby = on
max_connections = 200
"""


class Node:
    """One node; `port` is its own."""

    def __init__(self, folder: Path, programs: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._programs = programs
        self._data = folder / "data"
        self._user = system_user().pw_uid if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(folder, self._user, -1)
        self.port = _free_port()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def make_primary(self) -> None:
        self._run("initdb", "-D", self._data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8")
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS)

    def make_standby(self, primary: Node) -> None:
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={STANDBY}"
        self._run("pg_basebackup", "-D", self._data, "-d", source, "-R", "--checkpoint=fast", "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -c unix_socket_directories={self._folder}"
        self._run("pg_ctl", "-D", self._data, "-o", options, "-l", self._folder / "log", "-w", "start")

    def promote(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "promote")

    def kill(self) -> None:
        """Kill it and all of its processes at once, as a machine that loses power."""
        pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        children = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
        for process in [pid, *map(int, children.stdout.split())]:
            _kill(process)

    def stop(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop", check=False)

    def execute(self, *statements: str) -> None:
        with psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres", autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def wait_for_standby(self) -> None:
        """Wait until a synchronous standby follows."""
        question = b"SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        with psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres", autocommit=True) as conn:
            wait_for("a synchronous standby", lambda: conn.execute(question).fetchone())

    def _run(self, program: str, *words: object, check: bool = True) -> None:
        subprocess.run(
            [self._programs / program, *map(str, words)],
            user=self._user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=check,
        )


def reachable_programs(folder: Path) -> Path:
    """The folder of PostgreSQL's programs, where the user that runs them gets through; copied to `folder` for root."""
    binaries = find_binaries()
    return (copy_binaries(binaries, folder) if os.geteuid() == 0 else binaries).bin


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
