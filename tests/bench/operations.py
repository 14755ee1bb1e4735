"""Operations of the program whose cost is measured: an event, a hook, a search, a context, the work of the worker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import cast

import httpx
import msgspec
import psycopg
from psycopg.rows import TupleRow

from tests.bench import session
from tests.bench.cpu import cpu_seconds
from tests.bench.drain import OPEN_JOBS
from tests.bench.load import loader
from tests.bench.world import Place, World, free_port, program, value

_PROJECT = "github.com/acme/orders"
_QUERIES = ("refund parcel", "where is the retry limit set", "payments test fails", "voucher discount of an order", "warehouse")
_MAX_SECONDS = 600.0
_CALLERS = 8
_BATCH = 50
_FILLED_BATCH = 10
_numbers = count(time.time_ns() // 1_000_000 % 1_000_000_000)

_COUNTERS = """
    SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS wal,
           (SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()) AS buffers
"""
_ROWS = """
    SELECT s.relname, s.n_tup_ins + s.n_tup_upd + s.n_tup_del, s.n_tup_ins + s.n_tup_upd - s.n_tup_hot_upd,
           (SELECT count(*) FROM pg_index i WHERE i.indrelid = s.relid)
      FROM pg_stat_user_tables s
"""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A role of the program on a database."""

    pid: int
    postmaster: int
    place: Place
    port: int

    def client(self) -> httpx.Client:
        """With the place's key."""
        headers = {"Authorization": f"Bearer {self.place.key}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=60, trust_env=False)


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """An operation: which role does it, and how to make it do so many."""

    name: str
    role: str
    run: Callable[[Server, int], None]
    prepare: Callable[[Server, int], None] = lambda _server, _number: None
    """What is done before the clock starts."""
    together: int = 1
    """It is done so often at once, and never a part of that."""

    def rounded(self, number: int) -> int:
        """So many, or a few more."""
        return -(-number // self.together) * self.together


# -- what is done


def _event(number: int) -> dict[str, object]:
    return {
        "projectId": _PROJECT,
        "contentSessionId": f"profile-{number % 8}",
        "sourceType": "hook",
        "eventType": "PostToolUse",
        "sourceEventId": f"event-{number}",
        "payload": session.tool_use(number),
    }


def _send_events(server: Server, number: int) -> None:
    with server.client() as client:
        for _ in range(number):
            client.post("/v1/events", json=_event(next(_numbers))).raise_for_status()


def _send_events_together(server: Server, number: int) -> None:
    with ThreadPoolExecutor(_CALLERS) as pool:
        for sent in [pool.submit(_send_events, server, number // _CALLERS) for _ in range(_CALLERS)]:
            sent.result()


def _send_batches(server: Server, number: int) -> None:
    with server.client() as client:
        for _ in range(number // _BATCH):
            client.post("/v1/events/batch", json=[_event(next(_numbers)) for _ in range(_BATCH)]).raise_for_status()


def search(server: Server, number: int) -> None:
    """By words and meaning, as by default."""
    with server.client() as client:
        for place in range(number):
            body = {"query": _QUERIES[place % len(_QUERIES)], "projectId": str(server.place.project_id)}
            client.post("/v1/search", json=body).raise_for_status()


def read_context(server: Server, number: int) -> None:
    """The index of a session's start."""
    with server.client() as client:
        for _ in range(number):
            client.get("/v1/context", params={"project": str(server.place.project_id)}).raise_for_status()


def _send_hooks(server: Server, number: int) -> None:
    with server.client() as client:
        for _ in range(number):
            turn = next(_numbers)
            body = {**session.tool_use(turn), "session_id": f"hooks-{turn % 8}", "tool_use_id": f"toolu_h{turn}"}
            client.post("/v1/hooks/claude-code", json=body).raise_for_status()


def _fill(server: Server, number: int) -> None:
    """Events that become due when the clock has started."""
    with loader() as filling:
        filling.send(
            server.place.sql(
                connections=1, seconds=_MAX_SECONDS, batch=_FILLED_BATCH, requests=number // _FILLED_BATCH, delay_seconds=3600
            )
        )
    time.sleep(1.5)  # what the new rows caused in the worker is over


def _drain(server: Server, _number: int) -> None:
    with psycopg.connect(server.place.superuser_url, autocommit=True) as conn:
        conn.execute("UPDATE generation_lanes SET due_at = now()")
    end = time.monotonic() + _MAX_SECONDS
    while value(server.place.url, OPEN_JOBS):
        if time.monotonic() > end:
            raise RuntimeError("The queue was not emptied.")
        time.sleep(0.1)


KINDS = (
    Kind(name="an event, one after the other", role="api", run=_send_events),
    Kind(name="an event, eight callers at once", role="api", run=_send_events_together, together=_CALLERS),
    Kind(name="an event in a batch of 50", role="api", run=_send_batches, together=_BATCH),
    Kind(name="a hook's request", role="api", run=_send_hooks),
    Kind(name="an event in the worker, to its observation", role="worker", run=_drain, prepare=_fill, together=_FILLED_BATCH),
    Kind(name="a search by words and meaning", role="api", run=search),
    Kind(name="a context", role="api", run=read_context),
)


def _get(path: str) -> Callable[[Server, int], None]:
    def ask(server: Server, number: int) -> None:
        with server.client() as client:
            for _ in range(number):
                client.get(path).raise_for_status()

    return ask


LISTS = (
    Kind(name="a list of jobs", role="api", run=_get("/v1/jobs")),
    Kind(name="a list of observations", role="api", run=_get("/v1/observations")),
)


# -- how it is measured


@contextmanager
def start_role(world: World, place: Place, role: str) -> Generator[Server]:
    """`cmserver run --role` with the provider offline and no debounce, ready."""
    port = None if role == "worker" else free_port()
    settings = {"database_url": place.url, "log_format": "json", "provider": "offline", "generation_debounce_seconds": 0}
    command = [sys.executable, "-m", "cmserver", "run", "--role", role]
    with program(command, settings, world.free_folder(), port=port) as process:
        if port is None:
            while not value(place.url, "SELECT count(*) FROM generation_workers"):
                time.sleep(0.05)
            time.sleep(1)
        yield Server(pid=process.pid, postmaster=world.postmaster, place=place, port=port or 0)


def _counters(place: Place) -> tuple[float, float, dict[str, tuple[int, int, int]]]:
    """WAL bytes, buffers, and for each table: rows written, row versions that need index entries, indexes."""
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute("SELECT pg_stat_clear_snapshot()")
        wal, buffers = cast("TupleRow", conn.execute(_COUNTERS).fetchone())
        return float(wal), float(buffers), {name: (all_, indexed, indexes) for name, all_, indexed, indexes in conn.execute(_ROWS)}


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Everything per operation."""

    program_us: float
    """Microseconds of CPU time."""
    postgres_us: float
    rows: dict[str, float]
    """Rows written, by table."""
    index_entries: float
    """At most: a row counts for each index of its table, and partial ones may leave it out; HOT updates are left out."""
    wal_bytes: float
    buffers: float
    """Shared buffers looked at."""


def measure(server: Server, kind: Kind, number: int) -> Cost:
    """Do it so often, or a few times more, after a tenth as often to warm up."""
    number = kind.rounded(number)
    kind.prepare(server, number)
    if kind.role == "api":
        kind.run(server, kind.rounded(max(8, number // 10)))
    _settle()
    before, own, postgres = _counters(server.place), cpu_seconds(server.pid), cpu_seconds(server.postmaster)
    kind.run(server, number)
    own, postgres = cpu_seconds(server.pid) - own, cpu_seconds(server.postmaster) - postgres
    _settle()
    after = _counters(server.place)
    new = (0, 0, 0)
    written = {
        name: (rows - before[2].get(name, new)[0], indexed - before[2].get(name, new)[1], indexes)
        for name, (rows, indexed, indexes) in after[2].items()
    }
    return Cost(
        program_us=own * 1e6 / number,
        postgres_us=postgres * 1e6 / number,
        rows={
            name: rows / number for name, (rows, _, _) in sorted(written.items(), key=lambda it: -it[1][0]) if rows / number >= 0.01
        },
        index_entries=sum(indexed * indexes for _, indexed, indexes in written.values()) / number,
        wal_bytes=(after[0] - before[0]) / number,
        buffers=(after[1] - before[1]) / number,
    )


def _settle() -> None:
    """PostgreSQL's processes report their counters at most once a second, and an idle one what is left after ten seconds."""
    time.sleep(10.5)
