"""What is measured: cmserver and its peers, each started as its makers say, on the same PostgreSQL and the same machine."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import psycopg

from tests.bench import events
from tests.bench.cpu import cpu_seconds, pss_mib
from tests.bench.drain import OPEN_JOBS, RULES
from tests.bench.load import ROOT, Loader
from tests.bench.peers.frozen import make_place
from tests.bench.peers.install import FOLDER, Programs
from tests.bench.world import READY_SECONDS, SESSIONS, Place, World, free_port, program, value

MEASURES_SECONDS = 900
_LONGER = (1, 4, 16)
"""When nothing at all was answered, it is measured again, for so many times as long."""
_numbers = count(time.time_ns() // 1_000_000)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one round: events that were stored, the latency of a call, and the CPU time of everything but wrk."""

    events: int
    seconds: float
    cpu_seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    @property
    def cpu_per_thousand(self) -> float:
        """CPU seconds of 1,000 events."""
        return self.cpu_seconds * 1000 / self.events


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes events in, ready to be measured."""

    add: Callable[[int, float], Load]
    """Sends events over so many connections for so many seconds."""
    memory_mib: Callable[[], float] | None = None
    """The proportional set size of its processes beside PostgreSQL, where it has some that stay."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    name: str
    promise: str
    """What is safe when it has answered."""
    start: Callable[[Bench], AbstractContextManager[Subject]] | None = None
    drain: Callable[[Bench, int], Load] | None = None
    """Fills a queue with so many events and takes them all with one worker; the load is of the taking."""


class Bench:
    """What all peers use: PostgreSQL, the installed programs, and a folder for what they write."""

    def __init__(self, world: World, programs: Programs, over_sql: Loader) -> None:
        self.world = world
        self.programs = programs
        self.over_sql = over_sql
        self.folder = world.folder / "peers"
        self.folder.mkdir(exist_ok=True)
        self.payload = self.folder / "payload.json"
        self.payload.write_bytes(_with_marks(events.payload("github.com/acme/orders", "bench-session-001")))

    def database(self) -> str:
        """The URL of a fresh, empty database."""
        name = f"peer_{secrets.token_hex(4)}"
        self.world.embedded.create_database(name)
        return self.world.embedded.url_for(name)

    def environment(self, **names: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), **names}

    @property
    def postmaster(self) -> int:
        return self.world.postmaster

    @contextmanager
    def running(
        self, command: Sequence[str | Path], is_ready: Callable[[], bool], environment: dict[str, str]
    ) -> Generator[subprocess.Popen[bytes]]:
        """A program that is ready; ended after the block."""
        log = self.folder / f"{Path(command[0]).name}-{next(_numbers)}.log"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as process,
        ):
            try:
                end = time.monotonic() + READY_SECONDS
                while not is_ready():
                    if process.poll() is not None or time.monotonic() > end:
                        raise RuntimeError(
                            f"{command[0]} did not become ready. It wrote:\n{log.read_text(errors='replace')[-2000:]}"
                        )
                    time.sleep(0.05)
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()

    def wrk(self, url: str, head: Mapping[str, str], body: bytes, connections: int, seconds: float, pids: Sequence[int]) -> Load:
        """Load by wrk; the CPU time is of the processes `pids` with their children."""
        template = self.folder / "request"
        path = "/" + url.split("/", 3)[3]
        lines = [f"POST {path} HTTP/1.1", f"Host: {url.split('/')[2]}", *(f"{name}: {text}" for name, text in head.items())]
        # The marks are as long as what stands in their place.
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        template.write_bytes("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        first = next(_numbers) * 100_000 % 1_000_000_000_000
        names = self.environment(
            BENCH_TEMPLATE=str(template),
            BENCH_SESSIONS=str(SESSIONS),
            BENCH_FIRST=str(first),
            LD_LIBRARY_PATH=self.programs.library_path,
        )
        for longer in _LONGER:
            command = [self.programs.wrk, f"-c{connections}", "-t1", f"-d{max(1, round(seconds * longer))}s", "--timeout", "60s"]
            before = sum(map(cpu_seconds, pids))
            done = subprocess.run(
                [*command, "-s", FOLDER / "event.lua", url],
                env=names,
                capture_output=True,
                text=True,
                check=False,
                timeout=MEASURES_SECONDS,
            )
            used = sum(map(cpu_seconds, pids)) - before
            found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            if done.returncode or not found:
                raise RuntimeError(f"wrk failed: {done.stderr or done.stdout}")
            result = json.loads(found[0].removeprefix("RESULT "))
            if result["errors"]:
                raise RuntimeError(f"{url} did not store each event: {done.stdout}")
            if result["events"]:
                return Load(
                    events=result["events"],
                    seconds=result["seconds"],
                    cpu_seconds=used,
                    p50_ms=result["p50_ms"],
                    p99_ms=result["p99_ms"],
                )
        raise RuntimeError(f"{url} answered nothing.")

    def drive(self, command: Sequence[str | Path], names: Mapping[str, str], pids: Sequence[int]) -> Load:
        """A driver that prints FILLED (or does not) and then its result; its own CPU time is added to that of `pids`."""
        with subprocess.Popen(
            command, env=self.environment(**names), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            before = sum(map(cpu_seconds, pids))
            line = process.stdout.readline()
            if line.startswith("FILLED"):
                before = sum(map(cpu_seconds, pids))
                process.stdin.write("go\n")
                process.stdin.flush()
                line = process.stdout.readline()
            used = sum(map(cpu_seconds, pids)) - before
            error = process.stderr.read() if not line else ""
            process.stdin.close()
        if not line:
            raise RuntimeError(f"{command} failed: {error[-2000:]}")
        result = json.loads(line)
        return Load(
            events=result["events"],
            seconds=result["seconds"],
            cpu_seconds=used + result["cpu_seconds"],
            p50_ms=result.get("p50_ms"),
            p99_ms=result.get("p99_ms"),
        )


def _with_marks(numbered: events.Numbered) -> bytes:
    """The text with ############ for its number again."""
    return numbered(111_111_111_111).replace(b"111111111111", b"############")


# -- cmserver


def _event_body(place: Place) -> bytes:
    """The request body of one event; @@@ is the number of the session."""
    return _with_marks(events.body(str(place.project_id), events.session_name(0))).replace(
        b"bench-session-000", b"bench-session-@@@"
    )


def _wait_until_drained(url: str) -> None:
    end = time.monotonic() + MEASURES_SECONDS
    while value(url, OPEN_JOBS):
        if time.monotonic() > end:
            raise RuntimeError("The queue was not emptied.")
        time.sleep(0.1)


@contextmanager
def _cmserver(bench: Bench, *, role_name: str) -> Generator[Subject]:
    place = bench.world.place()
    port = free_port()
    settings = {"database_url": place.url, "log_format": "json"}
    command = [sys.executable, "-m", "cmserver", "run", "--role", role_name]
    with program(command, settings, bench.world.free_folder(), port=port) as process:

        def add(connections: int, seconds: float) -> Load:
            pids = [process.pid, bench.postmaster]
            url = f"http://127.0.0.1:{port}/v1/events"
            before = sum(map(cpu_seconds, pids))
            load = bench.wrk(url, {"Authorization": f"Bearer {place.key}"}, _event_body(place), connections, seconds, pids)
            if role_name != "all":
                return load
            _wait_until_drained(place.url)  # the next peer is measured when nothing of this one is left to do
            return msgspec.structs.replace(load, cpu_seconds=sum(map(cpu_seconds, pids)) - before)

        yield Subject(add=add, memory_mib=lambda: pss_mib(process.pid))


def _drain_cmserver(bench: Bench, number: int) -> Load:
    place = bench.world.place()
    batch = min(100, number)
    bench.over_sql.send(
        place.sql(connections=1, seconds=MEASURES_SECONDS, batch=batch, requests=number // batch, delay_seconds=3600)
    )
    command = [sys.executable, "-m", "cmserver", "run", "--role", "worker"]
    settings = {"database_url": place.url, "log_format": "json", "provider": RULES, "generation_debounce_seconds": 0}
    with program(command, settings, bench.world.free_folder(), port=None) as process:
        while not value(place.url, "SELECT count(*) FROM generation_workers"):
            time.sleep(0.05)
        time.sleep(1)  # it has started, and its first look at the queue is over
        pids = [process.pid, bench.postmaster]
        before = sum(map(cpu_seconds, pids))
        with psycopg.connect(place.superuser_url, autocommit=True) as conn:
            conn.execute("UPDATE generation_lanes SET due_at = now()")
        began = time.perf_counter()
        _wait_until_drained(place.url)
        seconds = time.perf_counter() - began
        used = sum(map(cpu_seconds, pids)) - before
    return Load(events=number, seconds=seconds, cpu_seconds=used)


@contextmanager
def _frozen(bench: Bench) -> Generator[Subject]:
    place = make_place(bench.world, f"frozen_{secrets.token_hex(4)}")
    command = [sys.executable, "-m", "tests.bench.peers.frozen", msgspec.json.encode(place).decode(), bench.payload]

    def add(connections: int, seconds: float) -> Load:
        return bench.drive([*command, str(connections), str(seconds)], {"PYTHONPATH": str(ROOT)}, [bench.postmaster])

    yield Subject(add=add)


# -- queue libraries and plain SQL


def _library(name: str) -> Callable[[Bench], AbstractContextManager[Subject]]:
    @contextmanager
    def start(bench: Bench) -> Generator[Subject]:
        command = _installed_library(bench, name)

        def add(connections: int, seconds: float) -> Load:
            return bench.drive([*command, str(connections), str(seconds), str(sys.maxsize)], {}, [bench.postmaster])

        yield Subject(add=add)

    return start


def _drain_library(name: str) -> Callable[[Bench, int], Load]:
    def drain(bench: Bench, number: int) -> Load:
        command = _installed_library(bench, name, mode="drain")
        return bench.drive([*command, "1", "0", str(number)], {}, [bench.postmaster])

    return drain


def _installed_library(bench: Bench, name: str, mode: str = "add") -> list[str | Path]:
    """The command of its driver, on a fresh database in which the library has its tables."""
    python, script, url = bench.programs.python, FOLDER / "libraries.py", bench.database()
    subprocess.run([python, script, name, "install", url, bench.payload, "1", "0", "0"], check=True, timeout=MEASURES_SECONDS)
    return [python, script, name, mode, url, bench.payload]


# -- Redis


@contextmanager
def _redis(bench: Bench) -> Generator[tuple[int, int]]:
    """Its port and process, with the append-only file written to the disk every second, as claude-mem's compose file has it."""
    port = free_port()
    folder = bench.folder / f"redis-{port}"
    folder.mkdir()
    durable = ["--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--save", ""]
    command = [*bench.programs.redis_server, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), *durable]
    names = bench.environment(LD_LIBRARY_PATH=bench.programs.library_path)
    with bench.running(command, lambda: _answers(port, b"PING\r\n", b"+PONG"), names) as process:
        yield port, process.pid


def _answers(port: int, question: bytes, expected: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(question)
            return connection.recv(64).startswith(expected)
    except OSError:
        return False


@contextmanager
def _bullmq(bench: Bench) -> Generator[Subject]:
    with _redis(bench) as (port, redis):

        def add(connections: int, seconds: float) -> Load:
            return _drive_bullmq(bench, "add", port, redis, connections, seconds, 10**9)

        yield Subject(add=add, memory_mib=lambda: pss_mib(redis))


def _drain_bullmq(bench: Bench, number: int) -> Load:
    with _redis(bench) as (port, redis):
        return _drive_bullmq(bench, "drain", port, redis, 10, 0, number)


def _drive_bullmq(bench: Bench, mode: str, port: int, redis: int, connections: int, seconds: float, number: int) -> Load:
    command = ["node", FOLDER / "bullmq.mjs", mode, str(port), bench.payload, str(connections), str(seconds), str(number)]
    return bench.drive(command, {"BENCH_NODE_MODULES": str(bench.programs.node_modules)}, [redis])


# -- claude-mem


def _quiet(bench: Bench, folder: Path) -> dict[str, str]:
    """The environment of claude-mem's programs: nothing of this user's, no telemetry, no vector database to download."""
    return bench.environment(
        HOME=str(folder),
        CLAUDE_MEM_DATA_DIR=str(folder / "data"),
        CLAUDE_MEM_MANAGED="true",
        CLAUDE_MEM_CHROMA_ENABLED="false",
        CLAUDE_MEM_TELEMETRY="0",
        DO_NOT_TRACK="1",
    )


@contextmanager
def _claude_mem_worker(bench: Bench, *, version: str) -> Generator[Subject]:
    """No model is set up, so it does nothing with what it holds: the best that it can do at its door."""
    port = free_port()
    folder = bench.folder / f"claude-mem-worker-{port}"
    folder.mkdir()
    command = [bench.programs.bun, bench.programs.claude_mem(version) / "worker-service.cjs"]
    names = {**_quiet(bench, folder), "CLAUDE_MEM_WORKER_PORT": str(port)}
    ready = b"GET /api/readiness HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with bench.running(command, lambda: _answers(port, ready, b"HTTP/1.1 200"), names) as process:
        tool_use = msgspec.json.decode(bench.payload.read_bytes(), type=dict[str, object])
        body = msgspec.json.encode(
            {
                "contentSessionId": "bench-session-@@@",
                **{name: tool_use[name] for name in ("tool_name", "tool_input", "tool_response", "cwd", "tool_use_id")},
            }
        )

        def add(connections: int, seconds: float) -> Load:
            return bench.wrk(f"http://127.0.0.1:{port}/api/sessions/observations", {}, body, connections, seconds, [process.pid])

        yield Subject(add=add, memory_mib=lambda: pss_mib(process.pid))


@contextmanager
def _claude_mem_server(bench: Bench, *, version: str) -> Generator[Subject]:
    """Its API as its compose file runs it: generation is another container's work, and none is started."""
    port = free_port()
    folder = bench.folder / f"claude-mem-server-{port}"
    folder.mkdir()
    script = bench.programs.claude_mem(version) / "server-service.cjs"
    with _redis(bench) as (redis_port, redis):
        names = {
            **_quiet(bench, folder),
            "CLAUDE_MEM_RUNTIME": "server",
            "CLAUDE_MEM_SERVER_HOST": "127.0.0.1",
            "CLAUDE_MEM_SERVER_PORT": str(port),
            "CLAUDE_MEM_SERVER_DATABASE_URL": bench.database(),
            "CLAUDE_MEM_QUEUE_ENGINE": "bullmq",
            "CLAUDE_MEM_REDIS_URL": f"redis://127.0.0.1:{redis_port}",
            "CLAUDE_MEM_GENERATION_DISABLED": "true",
        }
        ready = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        with bench.running([bench.programs.bun, script, "start"], lambda: _answers(port, ready, b"HTTP/1.1 200"), names) as process:
            create = [bench.programs.bun, script, "server", "api-key", "create", "--scope", "memories:read,memories:write"]
            done = subprocess.run(create, env=names, capture_output=True, text=True, check=False, timeout=READY_SECONDS)
            if done.returncode or "{" not in done.stdout:
                raise RuntimeError(f"claude-mem made no key: {done.stderr or done.stdout}")
            key = json.loads(done.stdout[done.stdout.index("{") :])
            body = _with_marks(events.body(key["projectId"], "bench-session-000")).replace(
                b"bench-session-000", b"bench-session-@@@"
            )
            body = body[:-1] + b',"occurredAtEpoch":1795000000000}'

            def add(connections: int, seconds: float) -> Load:
                pids = [process.pid, redis, bench.postmaster]
                head = {"Authorization": f"Bearer {key['key']}"}
                return bench.wrk(f"http://127.0.0.1:{port}/v1/events", head, body, connections, seconds, pids)

            yield Subject(add=add, memory_mib=lambda: pss_mib(process.pid) + pss_mib(redis))


CLAUDE_MEM = ("13.25.3", "13.15.3")
"""The newest version, and the one that the first figures are of."""
ON_DISK = "committed to PostgreSQL's disk before the answer"
PEERS = {
    "cmserver run": Peer(
        name="`cmserver run` as it comes, its worker busy",
        promise=f"{ON_DISK}, with its job, place in the queue and audit",
        start=lambda bench: _cmserver(bench, role_name="all"),
    ),
    "cmserver api": Peer(
        name="`cmserver run --role api`",
        promise=f"{ON_DISK}, with its job, place in the queue and audit",
        start=lambda bench: _cmserver(bench, role_name="api"),
        drain=_drain_cmserver,
    ),
    "frozen statement": Peer(name="the statement that stored an event on 2026-11-24, by psycopg", promise=ON_DISK, start=_frozen),
    "plain inserts": Peer(name="plain inserts of one row, by psycopg", promise=f"{ON_DISK}; no queue", start=_library("plain")),
    "skip locked": Peer(
        name="a table and a loop with SKIP LOCKED, by psycopg",
        promise=f"{ON_DISK}; taken jobs are deleted before they are worked on",
        start=_library("skip_locked"),
        drain=_drain_library("skip_locked"),
    ),
    "procrastinate": Peer(
        name="procrastinate 3.10",
        promise=f"{ON_DISK}; a job of a worker that died stays taken",
        start=_library("procrastinate"),
        drain=_drain_library("procrastinate"),
    ),
    "pgqueuer": Peer(
        name="pgqueuer 1.6, by asyncpg", promise=ON_DISK, start=_library("pgqueuer"), drain=_drain_library("pgqueuer")
    ),
    "bullmq": Peer(
        name="BullMQ 6.7 on Redis 7",
        promise="in Redis' memory; on the disk within a second",
        start=_bullmq,
        drain=_drain_bullmq,
    ),
    **{
        f"claude-mem {version} worker": Peer(
            name=f"claude-mem {version}, its worker",
            promise="in its memory only: a crash loses what waits",
            start=partial(_claude_mem_worker, version=version),
        )
        for version in CLAUDE_MEM
    },
    **{
        f"claude-mem {version} server": Peer(
            name=f"claude-mem {version}, its server",
            promise="in PostgreSQL before the answer; its job in Redis' memory, on the disk within a second",
            start=partial(_claude_mem_server, version=version),
        )
        for version in CLAUDE_MEM
    },
}
