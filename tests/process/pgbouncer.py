"""A real PgBouncer before the tests' PostgreSQL, in any of its modes, to be stopped and started as one likes."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from cmserver.base.db import DatabaseUrls, Pooling
from cmserver.embedded.files import system_user
from tests.process.program import wait_for

_NEXT_RELEASE = "trixie"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_LIBRARIES = (
    "libc6",
    "libcares2",
    "libevent-2.1-7t64",
    "libpam0g",
    "libssl3t64",
    "libsystemd0",
    "libaudit1",
    "libcap-ng0",
    "libcap2",
)


def installed() -> list[str] | None:
    """The PgBouncer of this system; bin/test --all installs Debian's."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    return [found] if found else None


@functools.cache
def of_next_release(folder: Path) -> list[str] | None:
    """That of Debian's next release, unpacked with the libraries that it needs; None where it cannot be had."""
    if shutil.which("apt-get") is None or not Path(_KEYRING).exists():
        return None
    folder.chmod(0o755)
    for name in ("lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb [signed-by={_KEYRING}] http://deb.debian.org/debian {_NEXT_RELEASE} main\n")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{folder}/sources.list";\nDir::Etc::SourceParts "-";\nDir::State::Lists "{folder}/lists";\n'
        f'Dir::Cache "{folder}/cache";\nAPT::Sandbox::User "{"root" if os.geteuid() == 0 else ""}";\n'
    )
    env = {**os.environ, "APT_CONFIG": f"{folder}/apt.conf"}
    try:
        for words in (["apt-get", "update", "-qq"], ["apt-get", "download", "-qq", "pgbouncer", *_LIBRARIES]):
            subprocess.run(words, cwd=folder, env=env, check=True, capture_output=True, timeout=300)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, folder / "root"], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        return None
    (loader,) = (folder / "root" / "usr" / "lib").glob("*/ld-linux*.so*")  # its own C library: ours is older
    return [str(loader), "--library-path", str(loader.parent), str(folder / "root" / "usr" / "sbin" / "pgbouncer")]


class PgBouncer:
    """Between programs and the server of a database."""

    def __init__(self, program: Sequence[str], folder: Path, database: str, mode: Pooling, **settings: object) -> None:
        folder.mkdir(mode=0o755)
        there = conninfo_to_dict(database)
        self._program = program
        self._folder = folder
        self._name = str(there["dbname"])
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        users = folder / "users.txt"
        with psycopg.connect(database) as conn:
            names = [name for (name,) in conn.execute("SELECT rolname FROM pg_roles WHERE rolcanlogin").fetchall()]
        users.write_text("".join(f'"{name}" ""\n' for name in names))
        host = " ".join(f"{name}={there[name]}" for name in ("host", "port") if name in there)
        said = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": users,
            "pool_mode": mode,
            "default_pool_size": 40,
            "max_client_conn": 200,
            "server_login_retry": 1,
            **settings,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in said.items())
        (folder / "pgbouncer.ini").write_text(f"[databases]\n* = {host}\n[pgbouncer]\n{lines}")

    def url(self, user: str) -> str:
        return f"postgresql://{quote(user)}@127.0.0.1:{self.port}/{self._name}"

    def urls(self, pooling: Pooling, *, tenant: str | None, direct: str | None = None) -> DatabaseUrls:
        return DatabaseUrls(owner=self.url("cmserver"), tenant=self.url(tenant) if tenant else None, direct=direct, pooling=pooling)

    def start(self) -> None:
        as_root = os.geteuid() == 0  # which it refuses to be; and the server's socket is for its own user alone
        user = system_user() if as_root else None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._program, "-q", str(self._folder / "pgbouncer.ini")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
            )
        wait_for("PgBouncer to listen", self._listens)

    def kill(self) -> None:
        """As a crash does: all of its connections break."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
