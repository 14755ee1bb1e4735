"""The program under a storm: its processes, which are started again whenever they end, its PostgreSQL, and its hook client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec
import psycopg

from cmserver.base import credentials
from cmserver.embedded.files import Binaries, copy_binaries, find_binaries
from cmserver.embedded.postgres import EmbeddedPostgres
from tests.bench.world import free_port
from tests.faults.base import HOOK_CLIENT, Base
from tests.faults.plan import LEASE_SECONDS, can_mount, find_faketime
from tests.faults.plants import Change, copy_program
from tests.faults.provider import SETTINGS
from tests.faults.proxy import Proxy
from tests.process.program import environment, is_there, rows, wait_for
from tests.timeouts import Deadline, scaled

_CALL_BEYOND_LEASE_SECONDS = 7
"""A call may take longer than a freeze, so that a worker that wakes up has an answer in its hands."""
_HOLD_BEYOND_LEASE_SECONDS = 11
"""A batch that a live worker holds for longer goes back, and a statement without an answer for longer is given up. No setting is
as short."""
_LONGEST_LEASE_SECONDS = 6.0
_STEWARD_SECONDS = 5.0
"""How long a fault waits for the steward to work; its workers look for jobs every few seconds."""
_DISK, _SPOOL_DISK = "300m", "2m"
_SITECUSTOMIZE = Path(__file__).parent / "clock"
_CLUSTER_SETTINGS = {"fsync": "off"}
"""A process that dies loses nothing that it gave to the operating system."""


class Process:
    """`cmserver run <words>`, started again whenever it ends."""

    def __init__(self, name: str, words: list[str], folder: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self._words, self._folder, self._env = words, folder, env
        self.starts = 0
        self.exits: list[int] = []
        """Codes of ends that came by themselves."""
        self.killed: set[int] = set()
        self.popen = self._start()

    @property
    def pid(self) -> int:
        return self.popen.pid

    def kill(self) -> None:
        self.killed.add(self.pid)
        self.popen.kill()

    def look_after(self) -> None:
        """Start it again if it has ended."""
        code = self.popen.poll()
        if code is not None:
            if self.pid not in self.killed:
                self.exits.append(code)
            self.popen = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        with (self._folder / f"{self.name}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "cmserver", "run", *self._words],
                env=self._env,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )


class FrozenWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker whose lease was over when its process went on, and the last line of the job log then: it may claim nothing more."""

    worker_id: int
    log_id: int


class System:
    """Processes, database and hook client of a storm, in a folder of their own. Start and stop it in one thread."""

    def __init__(
        self, layout: str, kinds: Collection[str], seed: int, base: Base, program: Path, folder: Path, provider_url: str
    ) -> None:
        """Ready for these kinds of faults: a small disk has to be there before, and so has another clock."""
        self.layout, self.kinds, self.folder = layout, kinds, folder
        self.frozen: list[FrozenWorker] = []
        self.lease_seconds = min(scaled(LEASE_SECONDS), _LONGEST_LEASE_SECONDS)
        """As short as a worker on this machine can keep it."""
        held = "return max(300.0, 2.5 * self.provider_timeout_seconds)"
        shorter = f"return {self.lease_seconds + _HOLD_BEYOND_LEASE_SECONDS}"
        program = copy_program(program, folder / "program", [Change(file="cmserver/base/settings.py", old=held, new=shorter)])
        self._mounts: list[Path] = []
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._data = folder / "data"
        self.disk = self._data if layout == "embedded" else folder / "pg"
        """Where PostgreSQL's files are."""
        self.disk.mkdir(mode=0o711)
        if "disk-postgres" in kinds and can_mount():
            self._mount(self.disk, _DISK)
        base.copy_data(self._data)
        self.home = folder / "home"
        self.client = self.home / HOOK_CLIENT
        self.client.mkdir(parents=True)
        if "disk-spool" in kinds and can_mount():
            self._mount(self.client, _SPOOL_DISK)
        base.copy_client(self.client, program, self.url)
        found = credentials.read(self._data)
        assert found is not None
        self.key = found.key
        self.own: EmbeddedPostgres | None = None
        self._has_own_started = False
        """Not after a start that failed, as on a full disk."""
        self.proxy: Proxy | None = None
        if layout == "embedded":
            self.database = EmbeddedPostgres(self._data).url
        else:
            subprocess.run(["mv", self._data / base.cluster, self.disk], check=True)
            self.own = EmbeddedPostgres(self.disk, self._binaries(), settings=_CLUSTER_SETTINGS)
            self.own.start()
            self._has_own_started = True
            self.database = self.own.url
            self.proxy = Proxy(self.own.sockets / f".s.PGSQL.{_port_of(self.own)}", seed)
        self.settings = {
            **SETTINGS,
            "CMSERVER_BASE_URL": f"{provider_url}/v1",
            "CMSERVER_PORT": str(self.port),
            "CMSERVER_LEASE_SECONDS": f"{self.lease_seconds:g}",
            "CMSERVER_HEARTBEAT_SECONDS": f"{self.lease_seconds / 4:g}",
            "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0",
            "CMSERVER_GENERATION_CONCURRENCY": "40",
            "CMSERVER_PROVIDER_TIMEOUT_SECONDS": f"{self.lease_seconds + _CALL_BEYOND_LEASE_SECONDS:g}",
            "CMSERVER_STATEMENT_TIMEOUT_SECONDS": "2",
            "CMSERVER_EMBEDDER": "none",
            "PYTHONPATH": os.pathsep.join([str(program), os.environ.get("PYTHONPATH", "")]),
            **({"CMSERVER_DATABASE_URL": self._proxied_url()} if self.proxy else {}),
        }
        roles = {"api": ["--role", "api"], "worker-1": ["--role", "worker"], "worker-2": ["--role", "worker"]}
        parts: dict[str, list[str]] = roles if layout == "split" else {"run": []}
        self.processes = {name: Process(name, words, folder, self._environment(name)) for name, words in parts.items()}
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    # -- looking after it

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            with suppress(httpx.HTTPError):
                return httpx.get(f"{self.url}/readyz", timeout=3, trust_env=False).status_code == 200
            return False

        wait_for(f"{self.url} to be ready (see {self.folder})", is_ready, 30)

    def keep_postgres(self) -> None:
        """Start our own PostgreSQL again if it has ended."""
        if self.own is None or (self._has_own_started and is_there(self.own.pid)):
            return
        self._has_own_started = False
        self.own.stop()
        self.own.start()
        self._has_own_started = True

    def count_starts(self) -> int:
        return sum(process.starts for process in self.processes.values())

    def list_exits(self) -> list[str]:
        """The processes that have ended by themselves, with their codes."""
        return [f"{process.name} ended with {code}" for process in self.processes.values() for code in process.exits]

    def stop(self) -> None:
        """End everything, without mercy."""
        self._is_over.set()
        self._watching.join()
        pids = [pid for process in self.processes.values() for pid in [process.pid, *descendants(process.pid)]]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.popen.wait()
        for pid in pids:
            wait_for(f"the end of {pid}", lambda pid=pid: not is_there(pid))
        if self.proxy is not None:
            self.proxy.close()
        if self.own is not None:
            self.own.stop()
        self._remove_clock_memory()
        for mount in reversed(self._mounts):
            subprocess.run(["umount", "-l", mount], check=False)

    def _remove_clock_memory(self) -> None:
        """libfaketime leaves two files of each process that is killed."""
        for file in Path("/dev/shm").glob("*faketime_*_*"):
            pid = int(file.name.rpartition("_")[2])
            if not is_there(pid):
                file.unlink(missing_ok=True)

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            for process in self.processes.values():
                process.look_after()

    def ask(self, question: str, **values: object) -> list[dict[str, object]]:
        """Rows of the database; none while it is away."""
        with suppress(psycopg.Error):
            return rows(self.database, question, **values)
        return []

    # -- finding victims

    def find(self, role: str, dice: float) -> int:
        """The pid of the API (`api`), of a worker (`worker`), of PostgreSQL (`postgres`), or of one of its backends (`backend`).

        0 where PostgreSQL could not be started again.
        `steward` is the worker that has a job of the steward, once there is one. In `cmserver run` a worker may be a process of its
        own, below the first one.
        """
        if role == "steward":
            deadline = Deadline(_STEWARD_SECONDS)
            while not deadline.is_over:
                if held := self.ask("SELECT locked_by FROM steward_jobs WHERE status = 'running' LIMIT 1"):
                    return int(str(held[0]["locked_by"]).rpartition(":")[2])
                time.sleep(0.005)
            return self.find("worker", dice)
        if role in {"postgres", "backend"} and self.own and not self._has_own_started:
            return 0
        if role in {"postgres", "backend"}:
            postgres = self.own.pid if self.own else _choose(_named(descendants(self._main.pid), "postgres"), 0)
            return postgres if role == "postgres" else _choose(descendants(postgres), dice)
        if self.layout == "split":
            return self.processes["api" if role == "api" else "worker-1" if dice < 0.5 else "worker-2"].pid
        workers = [pid for pid in _named(descendants(self._main.pid), "worker") if "postgres" not in _command_of(pid)]
        return _choose(workers, dice) if role == "worker" and workers else self._main.pid

    def kill(self, pid: int) -> None:
        for process in self.processes.values():
            if process.pid == pid:
                process.killed.add(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    @property
    def _main(self) -> Process:
        return next(iter(self.processes.values()))

    # -- making it

    def _proxied_url(self) -> str:
        assert self.proxy is not None
        return f"postgresql://cmserver@127.0.0.1:{self.proxy.port}/cmserver"

    def clock(self, name: str) -> Path:
        """The file that says how far the clock of that process, or of PostgreSQL, is off."""
        return self.folder / f"clock-{name}"

    def _environment(self, name: str) -> dict[str, str]:
        env = environment(self.folder, self.settings)
        env["PYTHONPATH"] = self.settings["PYTHONPATH"]
        if {"clock-api", "clock-worker"} & {*self.kinds}:
            self.clock(name).write_text("+0\n")
            env |= _faketime(self.clock(name))
            env["PYTHONPATH"] = os.pathsep.join([str(_SITECUSTOMIZE), env["PYTHONPATH"]])
        return env

    def _binaries(self) -> Binaries | None:
        """PostgreSQL's programs; for a storm that sets its clock with a `postgres` that starts the real one under another clock."""
        if "clock-postgres" not in self.kinds:
            return None
        real = copy_binaries(find_binaries(), self.folder)
        clock, programs = self.clock("postgres"), self.folder / "programs"
        clock.write_text("+0\n")
        clock.chmod(0o644)
        programs.mkdir(mode=0o755)
        variables = " ".join(f"{name}='{value}'" for name, value in _faketime(clock).items())
        postgres = programs / "postgres"
        postgres.write_text(f'#!/bin/sh\n{variables} exec {real.bin}/postgres "$@"\n')
        postgres.chmod(0o755)
        return Binaries(bin=programs, major=real.major)

    def _mount(self, folder: Path, size: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=711", "tmpfs", folder], check=True)
        self._mounts.append(folder)


def descendants(pid: int) -> list[int]:
    """The pids of its children and theirs."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, frontier = list[int](), [pid]
    while frontier:
        frontier = [child for child, parent in parents.items() if parent in frontier]
        found += frontier
    return found


def _command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _named(pids: list[int], word: str) -> list[int]:
    return [pid for pid in pids if word in _command_of(pid)]


def _choose(pids: list[int], dice: float) -> int:
    """One of them; 0, which is nobody, when there are none."""
    return pids[int(dice * len(pids))] if pids else 0


def _port_of(postgres: EmbeddedPostgres) -> str:
    return postgres.url.rpartition("port=")[2]


def _faketime(clock: Path) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(find_faketime()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
