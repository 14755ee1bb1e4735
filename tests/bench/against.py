"""CPU time and memory beside another commit of this repository: the price of what changed since."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import httpx
import msgspec
import psycopg

from cmserver.base.ids import new_id
from tests.bench import session
from tests.bench.cpu import cpu_seconds, resident_mib
from tests.bench.drain import OPEN_JOBS
from tests.bench.load import ROOT
from tests.bench.measure import Aim, Figure
from tests.bench.scale import Scale
from tests.bench.world import World, free_port, program, value

HOW = (
    "Two `cmserver run`, this tree's and that of an older commit ({commit}), with the offline provider and no debounce, each on a "
    "database of its own in one PostgreSQL. Each round sends the same requests to one, then to the other, over one connection; the "
    "side that begins alternates. A figure is the CPU time of the program and of PostgreSQL together, so the machine's other load "
    "has little part in it. Events are tool uses of two kilobytes, and their time includes turning them into observations."
)
_MAX_RATIO = 1 / 0.97
_AIM = Aim(of="ratio", at_least=False, bound=round(_MAX_RATIO, 3))
_MAX_DRAIN_SECONDS = 120.0
_QUERIES = ("refund parcel", "where is the retry limit set", "payments test fails", "voucher discount of an order", "warehouse")
_PROJECT = "github.com/acme/orders"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A running `cmserver run` and its database."""

    pid: int
    postmaster: int
    database_url: str
    client: httpx.Client
    numbers: Iterator[int]
    """Counts what was sent, so that no two events are the same."""

    def cpu_seconds(self) -> float:
        """CPU time of the program and of the PostgreSQL that both sides share. The other side is idle meanwhile."""
        return cpu_seconds(self.pid) + cpu_seconds(self.postmaster)

    def analyze(self) -> None:
        """Let PostgreSQL plan by what the tables hold. By itself it does so some time in the next minute, for one side before the
        other.
        """
        with psycopg.connect(self.database_url, autocommit=True) as conn:
            conn.execute("ANALYZE")

    def post(self, path: str, body: object) -> None:
        self.client.post(path, json=body).raise_for_status()

    def wait_until_drained(self) -> None:
        end = time.monotonic() + _MAX_DRAIN_SECONDS
        while value(self.database_url, OPEN_JOBS):
            if time.monotonic() > end:
                raise RuntimeError(f"Jobs were still open after {_MAX_DRAIN_SECONDS:g} s.")
            time.sleep(0.05)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """Requests whose CPU time is compared."""

    name: str
    run: Callable[[Server, int], None]
    """Sends so many requests."""
    requests: int
    unit_requests: int
    """The figure is the CPU time of so many requests."""


def run(world: World, scale: Scale, commit: str) -> list[Figure]:
    """The commit must be in the repository, and run with the dependencies of today."""
    with ExitStack() as stack:
        older_tree = stack.enter_context(checkout(world.folder / "older", commit))
        new = stack.enter_context(start_server(world, ROOT))
        old = stack.enter_context(start_server(world, older_tree))
        pairs: dict[str, list[tuple[float, float]]] = {operation.name: [] for operation in _operations(scale)}
        memory: list[tuple[float, float]] = []
        for round_number in range(-1, scale.rounds):  # the first one only warms up
            for operation in _operations(scale):
                order = (new, old) if round_number % 2 else (old, new)
                taken = {server.pid: _measure(server, operation) for server in order}
                if round_number >= 0:
                    pairs[operation.name].append((taken[new.pid], taken[old.pid]))
            if round_number >= 0:
                memory.append((resident_mib(new.pid), resident_mib(old.pid)))
            new.analyze()
            old.analyze()
        figures = [
            Figure(name=operation.name, unit="ms", yardstick=f"commit {commit}", pairs=pairs[operation.name], aim=_AIM)
            for operation in _operations(scale)
        ]
    starts = [(_start_milliseconds(world, ROOT), _start_milliseconds(world, older_tree)) for _ in range(scale.starts)]
    return [
        *figures,
        Figure(name="CPU time of a start", unit="ms", yardstick=f"commit {commit}", pairs=starts, aim=_AIM),
        Figure(name="memory of the program after each round", unit="MiB", yardstick=f"commit {commit}", pairs=memory, aim=_AIM),
    ]


def _operations(scale: Scale) -> list[Operation]:
    requests = scale.asked * 5
    return [
        Operation(
            name="CPU time of 1,000 events one by one, to observations", run=_send_events, requests=requests, unit_requests=1000
        ),
        Operation(
            name=f"CPU time of 1,000 events in batches of {scale.batch}, to observations",
            run=lambda server, events: _send_batches(server, events, scale.batch),
            requests=scale.batch * 10,
            unit_requests=1000,
        ),
        Operation(name="CPU time of a search", run=_search, requests=requests, unit_requests=1),
        Operation(name="CPU time of a context", run=_read_context, requests=requests, unit_requests=1),
        Operation(name="CPU time of a hook", run=_send_hooks, requests=requests, unit_requests=1),
    ]


def _measure(server: Server, operation: Operation) -> float:
    """CPU milliseconds of `unit_requests`."""
    before = server.cpu_seconds()
    operation.run(server, operation.requests)
    server.wait_until_drained()
    return (server.cpu_seconds() - before) * 1000 * operation.unit_requests / operation.requests


def _send_events(server: Server, events: int) -> None:
    for _ in range(events):
        server.post("/v1/events", _event(next(server.numbers)))


def _send_batches(server: Server, events: int, batch: int) -> None:
    for _ in range(events // batch):
        server.post("/v1/events/batch", [_event(next(server.numbers)) for _ in range(batch)])


def _search(server: Server, searches: int) -> None:
    for number in range(searches):
        server.post("/v1/search", {"query": _QUERIES[number % len(_QUERIES)], "projectId": _PROJECT})


def _read_context(server: Server, contexts: int) -> None:
    for _ in range(contexts):
        server.client.get("/v1/context", params={"project": _PROJECT}).raise_for_status()


def _send_hooks(server: Server, hooks: int) -> None:
    for _ in range(hooks):
        number = next(server.numbers)
        body = {**session.tool_use(number), "session_id": f"hooks-{number % 8}", "tool_use_id": f"toolu_h{number}"}
        server.post("/v1/hooks/claude-code", body)


def _event(number: int) -> dict[str, object]:
    return {
        "projectId": _PROJECT,
        "contentSessionId": f"events-{number % 8}",
        "sourceType": "hook",
        "eventType": "PostToolUse",
        "sourceEventId": f"event-{number}",
        "payload": session.tool_use(number),
    }


def _start_milliseconds(world: World, tree: Path) -> float:
    """CPU time until it is ready, on a database that is migrated already."""
    with start_server(world, tree) as server:
        return cpu_seconds(server.pid) * 1000


@contextmanager
def checkout(folder: Path, commit: str) -> Generator[Path]:
    """The files of that commit. The repository is left as it is."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit, "cmserver", "sql"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    yield folder


@contextmanager
def start_server(world: World, tree: Path, **settings: object) -> Generator[Server]:
    """`cmserver run` of that tree on a database of its own, with the offline provider and no debounce, unless it is set."""
    name = f"against_{secrets.token_hex(4)}"
    world.embedded.create_database(name)
    key = f"cms_{new_id().hex}_{secrets.token_hex(24)}"
    port = free_port()
    url = world.embedded.url_for(name)
    environment = {
        "database_url": url,
        "bootstrap_key": key,
        "log_format": "json",
        "provider": "offline",
        "generation_debounce_seconds": 0,
        **settings,
    }
    command = [sys.executable, "-m", "cmserver", "run"]
    with (
        program(command, environment, world.free_folder(), port=port, tree=tree) as process,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False
        ) as client,
    ):
        yield Server(pid=process.pid, postmaster=world.postmaster, database_url=url, client=client, numbers=count())
