"""Three nodes of PostgreSQL under Patroni and etcd, one on each host, made of the binaries that the embedded database uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import httpx
import psycopg

from cmserver.embedded.files import copy_binaries, find_binaries, system_user
from tests.cluster.network import Host
from tests.process.program import number, wait_for

SCOPE = "cmserver"
TTL_SECONDS = 20
"""The least that Patroni takes: so long a lost primary keeps its role in etcd."""
SECONDS = 120.0
"""Until the cluster has its primary and two standbys again."""


class Node:
    """One host of the database: etcd, Patroni, PostgreSQL."""

    def __init__(self, host: Host, folder: Path, patroni: Path, binaries: Path, hosts: Sequence[Host]) -> None:
        self.host = host
        self.folder = folder / host.name
        self.folder.mkdir()
        self._patroni = patroni
        self._user = system_user()
        os.chown(self.folder, self._user.pw_uid, -1)
        self._hosts = hosts
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._url = f"host={host.address} user=postgres password=postgres dbname=postgres connect_timeout=3"
        config = self.folder / "patroni.yml"
        config.write_text(json.dumps(_patroni_settings(host, self.folder, binaries, hosts)))
        config.chmod(0o644)

    def start_etcd(self) -> None:
        address = self.host.address
        peers = ",".join(f"{host.name}=http://{host.address}:2380" for host in self._hosts)
        self._start(
            "etcd",
            *("etcd", "--name", self.host.name, "--data-dir", str(self.folder / "etcd")),
            *("--listen-client-urls", f"http://{address}:2379", "--advertise-client-urls", f"http://{address}:2379"),
            *("--listen-peer-urls", f"http://{address}:2380", "--initial-advertise-peer-urls", f"http://{address}:2380"),
            *("--initial-cluster", peers, "--initial-cluster-state", "new", "--logger", "zap"),
        )

    def start_patroni(self) -> None:
        """Start it, and by it PostgreSQL."""
        self._start("patroni", str(self._patroni), str(self.folder / "patroni.yml"))

    def kill(self) -> None:
        """End Patroni and PostgreSQL at once, as when the machine loses power; etcd goes on, as a third of the votes."""
        pids = [self._processes["patroni"].pid, *self._postgres_pids()]
        for pid in pids:
            _kill(pid)
        self._processes.pop("patroni").wait()
        wait_for("the end of PostgreSQL", lambda: not self._postgres_pids())

    def hold_replication(self) -> Callable[[signal.Signals], None]:
        """Let this standby receive nothing, unnoticed, until what is returned is called; by SIGKILL what was on its way is lost."""
        listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()]
        ours = self._postgres_pids()
        (receiver,) = [int(pid) for pid, _, words in rows if int(pid) in ours and "walreceiver" in words]
        os.kill(receiver, signal.SIGSTOP)
        return lambda sign: _kill(receiver, sign)

    def received(self) -> int:
        """Up to where this standby has the log of the primary, in bytes."""
        return number(self._url, "SELECT (pg_last_wal_receive_lsn() - '0/0')::bigint")

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        for pid in self._postgres_pids():
            _kill(pid)

    def execute(self, *statements: str) -> None:
        """Run the statements as the superuser."""
        with psycopg.connect(self._url, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def _postgres_pids(self) -> list[int]:
        """The processes of this host's PostgreSQL."""
        file = self.folder / "data" / "postmaster.pid"
        if not file.exists():
            return []
        main = file.read_text().split()[0]
        listed = subprocess.run(["ps", "-eo", "pid=,ppid=,user:64=,stat="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        user = self._user.pw_name
        return [int(pid) for pid, parent, owner, stat in rows if main in (pid, parent) and owner == user and stat[0] != "Z"]

    def _start(self, name: str, *words: str) -> None:
        become = ["setpriv", f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*self.host.prefix, *become, *words],
                cwd="/",
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "PATRONI_LOG_LEVEL": "INFO", "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


class Cluster:
    """The three nodes. `url` names all of them and takes the one that can be written to."""

    def __init__(self, hosts: Sequence[Host], folder: Path, patroni: Path) -> None:
        binaries = copy_binaries(find_binaries(), folder).bin
        self.nodes = [Node(host, folder, patroni, binaries, hosts) for host in hosts]

    def start(self) -> None:
        for node in self.nodes:
            node.start_etcd()
        for node in self.nodes:
            node.start_patroni()
        self.wait_until_whole()
        self.primary.execute(
            "CREATE ROLE cmserver LOGIN PASSWORD 'cmserver'",
            "CREATE ROLE cmserver_tenant NOLOGIN",
            "GRANT cmserver_tenant TO cmserver",
            "CREATE ROLE cmserver_request LOGIN PASSWORD 'cmserver'",
            "GRANT cmserver_tenant TO cmserver_request",
            "CREATE DATABASE cmserver OWNER cmserver",
        )

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def url(self, user: str = "cmserver") -> str:
        hosts = ",".join(node.host.address for node in self.nodes)
        return f"postgresql://{user}:cmserver@{hosts}/cmserver?target_session_attrs=read-write&connect_timeout=3"

    @property
    def primary(self) -> Node:
        """The node that Patroni's own members call so."""
        return wait_for("a primary", self._find_primary, SECONDS)

    @property
    def standby(self) -> Node:
        """One that may become the primary; for a moment after a change members name one that is the primary by now."""
        return wait_for("a standby", self._find_standby, SECONDS)

    def wait_until_whole(self) -> None:
        """Until two standbys follow the primary, one of them synchronously, if that is how it is set."""

        def is_whole() -> bool:
            members = self.members()
            states = [member["state"] for member in members]
            roles = [member["role"] for member in members]
            has_sync = "sync_standby" in roles or not self._is_synchronous
            return states.count("streaming") == len(self.nodes) - 1 and "leader" in roles and has_sync

        wait_for("a primary and two standbys", is_whole, SECONDS)

    def switch_over(self) -> Node:
        """Ask Patroni to make the standby the primary; the new primary."""
        old, new = self.primary, self.standby
        answer = httpx.post(
            f"http://{old.host.address}:8008/switchover",
            json={"leader": old.host.name, "candidate": new.host.name},
            timeout=SECONDS,
            trust_env=False,
        )
        assert answer.status_code in {200, 202}, answer.text
        wait_for("the switchover", lambda: self._find_primary() is new, SECONDS)
        return new

    def set_synchronous(self, is_synchronous: bool) -> None:
        self._is_synchronous = is_synchronous
        answer = httpx.patch(
            f"http://{self.primary.host.address}:8008/config",
            json={"synchronous_mode": is_synchronous},
            timeout=SECONDS,
            trust_env=False,
        )
        assert answer.status_code == 200, answer.text
        wait_for(
            "the new mode", lambda: is_synchronous is ("sync_standby" in {member["role"] for member in self.members()}), SECONDS
        )

    _is_synchronous = True

    def members(self) -> list[dict[str, object]]:
        """What the primary says of all: name, role, state. Others, and one that was cut off, may know what is no longer so."""
        primary = self._find_primary()
        if primary is None:
            return []
        try:
            answer = httpx.get(f"http://{primary.host.address}:8008/cluster", timeout=2, trust_env=False)
        except httpx.HTTPError:
            return []
        return cast("list[dict[str, object]]", answer.json()["members"])

    def _find_primary(self) -> Node | None:
        for node in self.nodes:
            try:
                if httpx.get(f"http://{node.host.address}:8008/primary", timeout=2, trust_env=False).status_code == 200:
                    return node
            except httpx.HTTPError:
                continue
        return None

    def _find_standby(self) -> Node | None:
        role = "sync_standby" if self._is_synchronous else "replica"
        names = {member["name"] for member in self.members() if member["role"] == role}
        return next((node for node in self.nodes if node.host.name in names and node is not self._find_primary()), None)


def _patroni_settings(host: Host, folder: Path, binaries: Path, hosts: Sequence[Host]) -> dict[str, object]:
    return {
        "scope": SCOPE,
        "name": host.name,
        "restapi": {"listen": f"{host.address}:8008", "connect_address": f"{host.address}:8008"},
        "etcd3": {"hosts": [f"{each.address}:2379" for each in hosts]},
        "bootstrap": {
            "dcs": {
                "ttl": TTL_SECONDS,
                "loop_wait": 1,
                "retry_timeout": 3,
                "primary_start_timeout": 0,
                "maximum_lag_on_failover": 100_000_000,
                "synchronous_mode": True,
                "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on", "max_connections": 200}},
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
        },
        "postgresql": {
            "listen": f"{host.address}:5432",
            "connect_address": f"{host.address}:5432",
            "data_dir": str(folder / "data"),
            "bin_dir": str(binaries),
            "pgpass": str(folder / "pgpass"),
            "authentication": {
                "superuser": {"username": "postgres", "password": "postgres"},
                "replication": {"username": "replicator", "password": "replicator"},
            },
            "pg_hba": ["local all all trust", "host all all all trust", "host replication all all trust"],
            "parameters": {"unix_socket_directories": str(folder), "synchronous_commit": "on", "shared_buffers": "32MB"},
        },
    }


def _kill(pid: int, sign: signal.Signals = signal.SIGKILL) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return
