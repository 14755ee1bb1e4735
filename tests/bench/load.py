"""The load generator, in a process of its own: reads one order a line from its standard input, answers each with one line.

`python -m tests.bench.load`. It does as little as possible for each request, since it shares the machine with what is measured.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import LiteralString, cast
from uuid import UUID

import msgspec
import uvloop
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from cmserver.base.db import with_options
from cmserver.base.ids import new_id
from cmserver.base.tenant_role import TENANT_ROLE
from cmserver.generation.model import JOB_FOR_EVENT
from cmserver.ingest.model import NewEvent
from cmserver.ingest.repository import INGEST, INGEST_ONE
from tests.bench import events

ROOT = Path(__file__).resolve().parents[2]
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_PATIENCE_SECONDS = 30.0
_numbers = count(time.time_ns() // 1_000_000 % 1_000_000_000)


class Order(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What to send, over how many connections and for how long; `batch` events at once. `requests` ends it earlier."""

    project_id: UUID
    sessions: list[UUID]
    connections: int
    seconds: float
    warm_seconds: float = 0.2
    batch: int = 1
    requests: int = sys.maxsize


class Http(Order, frozen=True, kw_only=True, tag=True):
    """Over HTTP, one request after the other on each connection, or at a steady pace."""

    ports: tuple[int, ...]
    """The connections are spread over them."""
    key: str
    per_second: float | None = None
    """Of each connection."""


class Sql(Order, frozen=True, kw_only=True, tag=True):
    """The statement of ingest as psycopg sends it, prepared, in autocommit, as the tenant's role."""

    url: str
    team_id: UUID
    key_id: UUID
    delay_seconds: float


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order. `per_second` counts events."""

    per_second: float
    milliseconds: list[float]
    """How long each request took."""


class _Clock:
    """One order's time, and the requests that were begun and ended in it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._from = time.perf_counter() + order.warm_seconds
        self._until = self._from + order.seconds
        self._begun = 0
        self._last = self._from
        self._seconds: list[float] = []

    def may_begin(self) -> bool:
        self._begun += 1
        # However slow it is, something is measured.
        return self._begun <= self._order.requests and (time.perf_counter() < self._until or not self._seconds)

    def took(self, began: float) -> None:
        now = time.perf_counter()
        if began >= self._from:
            self._seconds.append(now - began)
            self._last = now

    def done(self) -> Done:
        rate = len(self._seconds) * self._order.batch / (self._last - self._from)
        return Done(per_second=rate, milliseconds=[seconds * 1000 for seconds in self._seconds])


# -- HTTP


class _Connection(asyncio.Protocol):
    """A keep-alive connection that sends the next request when the answer to the last one is complete."""

    def __init__(self, clock: _Clock, requests: Iterator[bytes], per_second: float | None) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._clock = clock
        self._requests = requests
        self._pause = 1 / per_second if per_second else 0.0
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._missing: int | None = None
        self._began = 0.0
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        if self._missing is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._head)
            if not self._head.startswith(b"HTTP/1.1 201") or length is None:
                self._fail(f"not an answer to an event: {self._head[:500]!r}")
                return
            self._missing = int(length[1]) + end + 4 - len(self._head)
        else:
            self._missing -= len(data)
        if self._missing == 0:
            self._clock.took(self._began)
            if self._pause:
                asyncio.get_running_loop().call_at(self._due, self._send)
            else:
                self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the server closed the connection ({exc})")

    def _send(self) -> None:
        assert self._transport is not None
        if not self._clock.may_begin():
            if not self.ended.done():
                self.ended.set_result(None)
            self._transport.close()
            return
        self._head, self._missing = b"", None
        self._due = asyncio.get_running_loop().time() + self._pause
        request = next(self._requests)
        self._began = time.perf_counter()
        self._transport.write(request)

    def _fail(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(RuntimeError(reason))


async def _over_http(order: Http) -> Done:
    clock = _Clock(order)
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(
            lambda place=place: _Connection(clock, _requests(order, place), order.per_second),
            "127.0.0.1",
            order.ports[place % len(order.ports)],
        )
        for place in range(order.connections)
    ]
    await asyncio.gather(*(connection.ended for _, connection in opened))
    return clock.done()


def _requests(order: Http, first: int) -> Iterator[bytes]:
    """For each request the next session, so that the connections are spread over them. A batch is of one session."""
    bodies = [events.body(str(order.project_id), events.session_name(place)) for place in range(len(order.sessions))]
    single = order.batch == 1
    size = events.BODY_BYTES if single else order.batch * (events.BODY_BYTES + 1) + 1
    head = (
        f"POST /v1/events{'' if single else '/batch'} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {order.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    ).encode()
    for place in count(first * len(bodies) // order.connections):
        body = bodies[place % len(bodies)]
        if single:
            yield head + body(next(_numbers))
        else:
            yield b"%s[%s]" % (head, b",".join(body(next(_numbers)) for _ in range(order.batch)))


# -- SQL


async def _over_sql(order: Sql) -> Done:
    url = with_options(order.url, f"-c role={TENANT_ROLE}")
    connections = [await AsyncConnection.connect(url, autocommit=True) for _ in range(order.connections)]
    try:
        clock = _Clock(order)
        text, params = (INGEST_ONE.text, _one) if order.batch == 1 else (INGEST.text, _many)
        await asyncio.gather(*(_sending(conn, clock, text, params(order, place)) for place, conn in enumerate(connections)))
        return clock.done()
    finally:
        for conn in connections:
            await conn.close()


async def _sending(
    conn: AsyncConnection[TupleRow], clock: _Clock, text: LiteralString, params: Iterator[dict[str, object]]
) -> None:
    while clock.may_begin():
        given = next(params)
        began = time.perf_counter()
        cursor = await conn.execute(text, given, prepare=True)
        await cursor.fetchall()
        clock.took(began)


def _common(order: Sql) -> dict[str, object]:
    return {
        "team_id": order.team_id,
        "api_key_id": order.key_id,
        "actor_id": "bench",
        "request_id": str(new_id()),
        "job_type": JOB_FOR_EVENT,
    }


def _one(order: Sql, first: int) -> Iterator[dict[str, object]]:
    common = _common(order)
    for row in _rows(order, first):
        fields = msgspec.structs.asdict(row)
        yield {**common, **fields, "payload": bytes(row.payload).decode(), "metadata": "{}"}


def _many(order: Sql, first: int) -> Iterator[dict[str, object]]:
    common, rows = _common(order), _rows(order, first)
    sender = {name: common[name] for name in ("api_key_id", "actor_id", "request_id")}
    while True:
        requests = msgspec.json.encode([{**sender, "events": [next(rows) for _ in range(order.batch)]}]).decode()
        yield {"team_id": order.team_id, "job_type": JOB_FOR_EVENT, "requests": requests, "lock_milliseconds": 0}


def _rows(order: Sql, first: int) -> Iterator[NewEvent]:
    """As the program makes them: the sessions in turn like `_requests`, ids in order, keys like hashes."""
    payloads = [events.payload(str(order.project_id), events.session_name(place)) for place in range(len(order.sessions))]
    for turn in count(first * len(payloads) // order.connections):
        place = turn % len(payloads)
        for within in range(order.batch):
            yield _row(order, order.sessions[place], payloads[place](next(_numbers)), within)


def _row(order: Sql, session_id: UUID, payload: bytes, place: int) -> NewEvent:
    return NewEvent(
        id=new_id(),
        job_id=new_id(),
        lane=session_id,
        project_id=order.project_id,
        server_session_id=session_id,
        source_adapter="hook",
        source_event_id=None,
        idempotency_key=f"agent_event:v1:{os.urandom(32).hex()}",
        event_type="PostToolUse",
        platform_source=None,
        origin="api",
        generate=True,
        size_chars=len(payload),
        payload=msgspec.Raw(payload),
        metadata={},
        occurred_at=datetime.now(UTC),
        place=place,
        prompt=None,
        delay_seconds=order.delay_seconds,
    )


# -- the process, from inside and from outside


def main() -> None:
    """Do what the orders say until there are no more."""
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for text in sys.stdin:
            order = msgspec.json.decode(text, type=Http | Sql)
            act = _over_http(order) if isinstance(order, Http) else _over_sql(order)
            done = runner.run(asyncio.wait_for(act, order.warm_seconds + order.seconds + _PATIENCE_SECONDS))
            sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
            sys.stdout.flush()
            gc.collect()


class Loader:
    """The process as others see it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, order: Http | Sql) -> Done:
        """Returns when the order is done. RuntimeError when the process has failed; its own words are on standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("The load generator has ended; its error is above.")
        return msgspec.json.decode(answer, type=Done)


@contextmanager
def loader() -> Generator[Loader]:
    """A load generator that ends with the block."""
    command = [sys.executable, "-m", "tests.bench.load"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Loader(process)
        finally:
            process.kill()


if __name__ == "__main__":
    main()
