"""Queue libraries and plain SQL in a measurement; run by the Python of the cache folder, and imports nothing of cmserver.

`python libraries.py NAME add|drain URL TEMPLATE CONNECTIONS SECONDS EVENTS`. `add` stores one event a call and a commit
over so many connections, until the time is over or so many events are stored; `drain` stores the events, then takes each and does
nothing with it. Prints one line of JSON: events, seconds, cpu_seconds of this process, and for `add` the percentiles of the calls.
"""
# Each library is imported where it is used: one process drives one of them, and cmserver's own environment has not all of them.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false, reportCallIssue=false, reportArgumentType=false
# ruff: noqa: PLC0415, T201

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

WORKERS = 10
"""Tasks that a drain works on at once; also the jobs that a claim takes where the library can take several."""

Add = Callable[[int, str], Awaitable[object]]
"""Stores one event over the connection of this place."""


class Measurement:
    """What happened since it was made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def result(self, events: int, milliseconds: list[float] | None = None) -> dict[str, float]:
        cpu = time.process_time() - self._cpu
        found = {"events": events, "seconds": time.perf_counter() - self._began, "cpu_seconds": cpu}
        if milliseconds:
            milliseconds.sort()
            for percent in (50, 99):
                found[f"p{percent}_ms"] = milliseconds[max(0, math.ceil(len(milliseconds) * percent / 100) - 1)]
        return found


class Payloads:
    """Events that differ by their number."""

    def __init__(self, template: Path) -> None:
        self._before, self._after = template.read_text(encoding="utf-8").split("############")
        self._numbers = count(time.time_ns() // 1_000_000)

    def next(self) -> str:
        return f"{self._before}{next(self._numbers):012d}{self._after}"


class Procrastinate:
    """Its own connector and pool, as its manual shows them: each call is a transaction of its own."""

    def __init__(self, url: str, connections: int) -> None:
        import procrastinate

        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=max(connections, 4))
        )
        self._done = 0

        @self._app.task(name="event")
        async def event(payload: object) -> None:
            self._done += 1

        self._task = event

    async def install(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def adders(self, stack: AsyncExitStack) -> Add:
        await stack.enter_async_context(self._app.open_async())
        return lambda _, payload: self._task.defer_async(payload=json.loads(payload))

    async def fill(self, payloads: list[str]) -> None:
        async with self._app.open_async():
            await self._task.batch_defer_async(*({"payload": json.loads(payload)} for payload in payloads))

    async def drain(self, events: int) -> int:
        async with self._app.open_async():
            await self._app.run_worker_async(concurrency=WORKERS, wait=False, install_signal_handlers=False)
        return self._done


class PgQueuer:
    """With asyncpg, the driver that it is fast with."""

    def __init__(self, url: str, connections: int) -> None:
        self._url, self._connections = url, connections

    async def install(self) -> None:
        import asyncpg
        from pgqueuer import Queries

        connection = await asyncpg.connect(self._url)
        await Queries.from_asyncpg_connection(connection).install()
        await connection.close()

    async def adders(self, stack: AsyncExitStack) -> Add:
        import asyncpg
        from pgqueuer import Queries

        pool = await stack.enter_async_context(
            asyncpg.create_pool(self._url, min_size=self._connections, max_size=self._connections)
        )
        queries = Queries.from_asyncpg_pool(pool)
        return lambda _, payload: queries.enqueue("event", payload.encode())

    async def fill(self, payloads: list[str]) -> None:
        async with AsyncExitStack() as stack:
            add = await self.adders(stack)
            for payload in payloads:
                await add(0, payload)

    async def drain(self, events: int) -> int:
        import asyncpg
        from pgqueuer import PgQueuer as Worker
        from pgqueuer.types import QueueExecutionMode

        connection = await asyncpg.connect(self._url)
        worker = Worker.from_asyncpg_connection(connection)
        done = 0

        @worker.entrypoint("event")
        async def event(job: object) -> None:
            nonlocal done
            done += 1

        await worker.run(batch_size=WORKERS, mode=QueueExecutionMode.drain)
        await connection.close()
        return done


class Psycopg:
    """One prepared statement in autocommit, over as many connections."""

    schema = ""
    insert = ""

    def __init__(self, url: str, connections: int) -> None:
        self._url, self._connections = url, connections

    async def _connect(self):
        from psycopg import AsyncConnection

        return await AsyncConnection.connect(self._url, autocommit=True)

    async def install(self) -> None:
        async with await self._connect() as connection:
            await connection.execute(self.schema)

    async def adders(self, stack: AsyncExitStack) -> Add:
        opened = [await stack.enter_async_context(await self._connect()) for _ in range(self._connections)]
        return lambda place, payload: opened[place].execute(self.insert, [payload], prepare=True)

    async def fill(self, payloads: list[str]) -> None:
        async with await self._connect() as connection, connection.cursor() as cursor:
            await cursor.executemany(self.insert, [[payload] for payload in payloads])


class PlainInserts(Psycopg):
    """A table with a primary key and nothing else: what PostgreSQL itself takes."""

    schema = "CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb NOT NULL)"
    insert = "INSERT INTO events (payload) VALUES (%s)"


class SkipLocked(Psycopg):
    """The loop of the textbooks: claim some with FOR UPDATE SKIP LOCKED, work, delete, commit."""

    schema = "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb NOT NULL)"
    insert = "INSERT INTO jobs (payload) VALUES (%s)"
    claim = """
        DELETE FROM jobs WHERE id IN (SELECT id FROM jobs ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING payload
    """

    async def drain(self, events: int) -> int:
        done = 0
        async with await self._connect() as connection:
            while True:
                async with connection.transaction():
                    rows = await (await connection.execute(self.claim, [WORKERS], prepare=True)).fetchall()
                if not rows:
                    return done
                done += len(rows)


LIBRARIES = {"procrastinate": Procrastinate, "pgqueuer": PgQueuer, "plain": PlainInserts, "skip_locked": SkipLocked}


async def add(library, payloads: Payloads, connections: int, seconds: float, events: int) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        store = await library.adders(stack)
        await asyncio.gather(*(store(place, payloads.next()) for place in range(connections)))  # connected and prepared
        measurement = Measurement()
        until = time.perf_counter() + seconds
        milliseconds: list[float] = []

        async def send(place: int) -> None:
            while (began := time.perf_counter()) < until and len(milliseconds) < events:
                await store(place, payloads.next())
                milliseconds.append((time.perf_counter() - began) * 1000)

        await asyncio.gather(*(send(place) for place in range(connections)))
        return measurement.result(len(milliseconds), milliseconds)


async def drain(library, payloads: Payloads, events: int) -> dict[str, float]:
    await library.fill([payloads.next() for _ in range(events)])
    print("FILLED", flush=True)  # whoever started this reads PostgreSQL's CPU time now, and then says so
    sys.stdin.readline()
    measurement = Measurement()
    done = await library.drain(events)
    if done < events:
        raise RuntimeError(f"Of {events} events only {done} were taken.")
    return measurement.result(done)


async def main(name: str, mode: str, url: str, template: str, connections: str, seconds: str, events: str) -> None:
    library = LIBRARIES[name](url, int(connections))
    if mode == "install":
        await library.install()
    elif mode == "add":
        print(json.dumps(await add(library, Payloads(Path(template)), int(connections), float(seconds), int(events))))
    else:
        print(json.dumps(await drain(library, Payloads(Path(template)), int(events))))


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(*sys.argv[1:]))
