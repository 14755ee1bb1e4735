"""A cluster of eight hosts on this machine: three with PostgreSQL under Patroni, two with the API, three with a worker."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from cmserver.embedded.files import system_user
from tests.cluster import network
from tests.cluster.network import Host, Network
from tests.cluster.patroni import Cluster
from tests.process.conftest import passable_folder
from tests.process.program import QUICK_LEASE, Program, command, measured
from tests.process.slow_provider import make

_LOCK = Path(__file__).with_name("patroni.lock")
_SEED = "CMSERVER_TEST_SEED"
_PORT = 8080
_SCOPE = "module" if "PYTEST_XDIST_WORKER" in os.environ else "session"
"""Where other tests run beside it, and files in other processes wait for it, the cluster ends with its file."""


class Site:
    """The cluster and cmserver's processes on it."""

    def __init__(self, folder: Path, cluster: Cluster, api_hosts: list[Host], worker_hosts: list[Host]) -> None:
        self.folder = folder
        self.cluster = cluster
        self.api_hosts, self.worker_hosts = api_hosts, worker_hosts
        self.programs: dict[str, Program] = {}
        """By the host's name, and the port where that is another one."""
        self.started: list[Program] = []
        """All that ever ran."""
        for host in api_hosts:
            self.start(host)
            self.programs[host.name].wait_until_ready()
        for host in worker_hosts:
            self.start(host)
            self.programs[host.name].wait_until_working()

    @property
    def urls(self) -> list[str]:
        return [f"http://{host.address}:{_PORT}" for host in self.api_hosts]

    @property
    def key(self) -> str:
        return self.programs[self.api_hosts[0].name].key

    @property
    def settings(self) -> dict[str, str]:
        return {
            **QUICK_LEASE,
            "CMSERVER_DATABASE_URL": self.cluster.url(),
            "CMSERVER_DATABASE_TENANT_URL": self.cluster.url("cmserver_request"),
            "CMSERVER_API_PROCESSES": "1",
            "CMSERVER_EMBEDDER": "none",
            "CMSERVER_PROVIDER": f"{make.__module__}:{make.__name__}",
        }

    def start(self, host: Host, port: int = _PORT) -> Program:
        """Start cmserver on the host, as what it is there for; it need not be ready yet."""
        role = "api" if host in self.api_hosts else "worker"
        name = host.name if port == _PORT else f"{host.name}-{port}"
        own = {"CMSERVER_DATA_DIR": str(self.folder / name), "CMSERVER_HOST": host.address, "CMSERVER_PORT": str(port)}
        settings = {**self.settings, **own}
        label = f"{name}-{len(self.started)}"
        program = Program(self.folder, label, "--role", role, settings=settings, prefix=host.prefix)
        self.programs[name] = program
        self.started.append(program)
        return program

    def stop(self) -> None:
        for program in self.programs.values():
            program.end()

    def run(self, *words: str) -> None:
        """`cmserver <words>` on this machine, with the cluster's database; it must succeed."""
        done = command(self.folder, *words, settings=self.settings)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def seed() -> int:
    return int(os.environ.get(_SEED) or random.SystemRandom().randrange(1_000_000))


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """Chooses when and where a fault comes, the same way in a test with the same seed."""
    measured(f"{_SEED}={seed}")
    return random.Random(f"{seed} {request.node.name}")


@pytest.fixture(scope=_SCOPE)
def site() -> Generator[Site]:
    with network.alone(), passable_folder() as folder:
        if not network.is_possible() or shutil.which("etcd") is None or shutil.which("setpriv") is None:
            pytest.skip(
                "needs root, the programs `ip` and `setpriv`, and etcd: as root on Debian, apt-get install etcd-server iproute2"
            )
        patroni = install_patroni(folder)
        net = Network()
        cluster = Cluster([net.add(f"d{place}") for place in (1, 2, 3)], folder, patroni)
        made: Site | None = None
        try:
            cluster.start()
            made = Site(folder, cluster, [net.add(f"a{place}") for place in (1, 2)], [net.add(f"w{place}") for place in (1, 2, 3)])
            yield made
        finally:
            if made is not None:
                made.stop()
            cluster.stop()
            network.remove()


def install_patroni(folder: Path) -> Path:
    """A program that runs Patroni, for PostgreSQL's user: with the system's Python, where ours is in a folder of root's alone."""
    packages = folder / "patroni-packages"
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--require-hashes", "--no-deps",
         "--target", packages, "-r", _LOCK],
        check=True,
    )  # fmt: skip
    user = system_user()
    version = "python{}.{}".format(*sys.version_info)
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        program = folder / "patroni"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {python} -m patroni "$@"\n')
        program.chmod(0o755)
        try:
            seen = subprocess.run([program, "--version"], user=user.pw_uid, cwd="/", env={}, capture_output=True, check=False)
        except OSError:
            continue
        if seen.returncode == 0:
            return program
    raise AssertionError(f"no {version} that user {user.pw_name} can run")
