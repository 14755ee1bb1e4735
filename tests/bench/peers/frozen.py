"""The statement that stored one event on 2026-11-24, sent straight by psycopg: a yardstick that does not move with the program.

`python -m tests.bench.peers.frozen PLACE TEMPLATE CONNECTIONS SECONDS` sends it and prints one line of JSON, as libraries.py does.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import LiteralString, cast
from uuid import UUID

import msgspec
import psycopg
import uvloop
from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection

from cmserver.base.db import with_options
from cmserver.base.ids import new_id
from cmserver.base.migrate import LAST_COMMIT_BEFORE_SQUASH
from cmserver.base.tenant_role import TENANT_ROLE
from tests.bench.measure import percentile
from tests.bench.world import SESSIONS, World
from tests.process.program import ROOT

_NEWEST_MIGRATION = 27
_STATEMENT = Path(__file__).with_suffix(".sql")
_INCLUDE_PROCRASTINATE = "--include procrastinate"
_PEOPLE = """
    INSERT INTO teams (id, name) VALUES (%(team)s, 'bench');
    INSERT INTO api_keys (id, key_hash, team_id, actor_id) VALUES (%(key)s, 'bench', %(team)s, 'bench');
    INSERT INTO projects (id, team_id, canonical_id, name) VALUES (%(project)s, %(team)s, 'github.com/acme/orders', 'orders');
"""
_SESSION = "INSERT INTO server_sessions (id, project_id, team_id) VALUES (%s, %s, %s)"


class FrozenPlace(msgspec.Struct, frozen=True):
    """A database with the schema of that day, one team, one project and its sessions."""

    url: str
    team_id: UUID
    key_id: UUID
    project_id: UUID
    sessions: list[UUID]


def make_place(world: World, name: str) -> FrozenPlace:
    """Make the database `name`, with the tables and indexes of that day."""
    world.embedded.create_database(name)
    url = world.embedded.url_for(name)
    place = FrozenPlace(url, new_id(), new_id(), new_id(), [new_id() for _ in range(SESSIONS)])
    with psycopg.connect(url, autocommit=True) as conn:
        for text in _migrations():
            with conn.transaction():
                conn.execute(cast("LiteralString", text.replace(_INCLUDE_PROCRASTINATE, SchemaManager.get_schema())))
    with psycopg.connect(
        world.embedded.url_for(name, role="postgres"), autocommit=True, cursor_factory=psycopg.ClientCursor
    ) as conn:
        conn.execute(_PEOPLE, {"team": place.team_id, "key": place.key_id, "project": place.project_id})
        for session in place.sessions:
            conn.execute(_SESSION, [session, place.project_id, place.team_id])
    return place


def _migrations() -> list[str]:
    """The texts of that day, from the history of this checkout."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout

    files = git("ls-tree", "--name-only", LAST_COMMIT_BEFORE_SQUASH, "sql/migrations/").splitlines()
    return [git("show", f"{LAST_COMMIT_BEFORE_SQUASH}:{file}") for file in sorted(files)[:_NEWEST_MIGRATION]]


async def send(place: FrozenPlace, template: str, connections: int, seconds: float) -> dict[str, float]:
    """Send the statement over so many connections, prepared, in autocommit, as the tenant's role."""
    before, after = template.split("############")
    numbers = count(time.time_ns() // 1_000_000)
    statement = cast("LiteralString", _STATEMENT.read_text(encoding="utf-8"))
    url = with_options(place.url, f"-c role={TENANT_ROLE}")
    opened = [await AsyncConnection.connect(url, autocommit=True) for _ in range(connections)]

    async def store(conn: AsyncConnection) -> None:
        number = next(numbers)
        cursor = await conn.execute(statement, _row(place, f"{before}{number:012d}{after}", number), prepare=True)
        if len(await cursor.fetchall()) != 1:
            raise RuntimeError("The frozen statement did not store its event.")

    await asyncio.gather(*map(store, opened))  # connected and prepared
    cpu, began = time.process_time(), time.perf_counter()
    milliseconds: list[float] = []

    async def send_until(conn: AsyncConnection, end: float) -> None:
        while (at := time.perf_counter()) < end:
            await store(conn)
            milliseconds.append((time.perf_counter() - at) * 1000)

    await asyncio.gather(*(send_until(conn, began + seconds) for conn in opened))
    taken = time.perf_counter() - began
    used = time.process_time() - cpu
    for conn in opened:
        await conn.close()
    p50, p99 = percentile(milliseconds, 50), percentile(milliseconds, 99)
    return {"events": len(milliseconds), "seconds": taken, "cpu_seconds": used, "p50_ms": p50, "p99_ms": p99}


def _row(place: FrozenPlace, payload: str, number: int) -> dict[str, object]:
    session = place.sessions[number % len(place.sessions)]
    return {
        "team_id": place.team_id,
        "api_key_id": place.key_id,
        "actor_id": "bench",
        "request_id": str(new_id()),
        "max_attempts": 3,
        "id": new_id(),
        "job_id": new_id(),
        "lane": session,
        "project_id": place.project_id,
        "server_session_id": session,
        "source_adapter": "hook",
        "source_event_id": None,
        "idempotency_key": f"agent_event:v1:{os.urandom(32).hex()}",
        "job_key": f"generation_job:v1:{os.urandom(32).hex()}",
        "event_type": "PostToolUse",
        "platform_source": None,
        "origin": "api",
        "generate": True,
        "size_chars": len(payload),
        "payload": payload,
        "metadata": "{}",
        "occurred_at": datetime.now(UTC),
        "waits_for_end": False,
        "delay_seconds": 2.0,
        "at_most": None,
    }


def main(place: str, template: str, connections: str, seconds: str) -> None:
    found = send(msgspec.json.decode(place, type=FrozenPlace), Path(template).read_text("utf-8"), int(connections), float(seconds))
    sys.stdout.write(json.dumps(uvloop.run(found)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
