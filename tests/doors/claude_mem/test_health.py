"""What claude-mem's hooks ask before each call."""

from __future__ import annotations

import httpx
import pytest

from cmserver import __version__
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.generation.queue_monitor import QueueMonitor
from tests.generation.tools import Outbox, Scripted

PREFLIGHT = ["/health", "/api/health", "/api/readiness", "/api/version"]


@pytest.mark.parametrize("path", ["/health", "/api/health"])
async def test_health_tells_no_version_no_process_and_no_path(client: httpx.AsyncClient, path: str):
    """A hook of another version than the one it reads there would try to kill the server, and send nothing."""
    response = await client.get(path)

    answer = response.json()
    assert response.status_code == 200
    assert (answer["status"], answer["runtime"]) == ("ok", "server-beta")
    assert not {"version", "pid", "workerPath", "database"} & answer.keys()
    assert __version__ not in response.text


async def test_health_has_what_their_clients_read(client: httpx.AsyncClient):
    answer = (await client.get("/api/health")).json()

    assert answer["initialized"] is answer["mcpReady"] is True
    assert answer["dependencies"] == {"degraded": False, "statuses": []}
    assert answer["uptime"] >= 0
    assert answer["platform"]
    assert answer["ai"].keys() == {"provider", "authMethod", "lastInteraction"}


async def test_it_is_ready_and_says_its_version_only_where_it_is_asked_for_that(client: httpx.AsyncClient):
    assert (await client.get("/api/readiness")).json() == {"status": "ready", "mcpReady": True}
    assert (await client.get("/api/version")).json() == {"version": __version__}


@pytest.mark.parametrize("path", ["/health", "/api/health"])
async def test_health_has_the_numbers_of_the_last_look(client: httpx.AsyncClient, app: AsgiFrame, outbox: Outbox, path: str):
    before = (await client.get(path)).json()
    await outbox.put(2, session="s1")
    await outbox.put(1, session="s2")
    await (await outbox.hand(Scripted())).claim(slots=1)
    await app.dependencies.get(QueueMonitor).look()

    health = (await client.get(path)).json()

    assert (before["activeSessions"], before["queue"]["queued"], before["queue"]["processing"]) == (None, None, None)
    assert health["activeSessions"] == 2
    assert health["queue"]["queued"] + health["queue"]["processing"] == 3
    assert health["queue"]["processing"] >= 1
    assert health["memory"]["rss"] > 1_000_000


async def test_nobody_waits_for_the_database(client: httpx.AsyncClient, db: Db):
    """A hook asks five times, whatever else goes on, and sends nothing when it gets no answer."""
    await db.__aexit__()

    assert [(await client.get(path)).status_code for path in PREFLIGHT] == [200] * 4


@pytest.mark.parametrize("path", PREFLIGHT)
async def test_anybody_may_ask(client: httpx.AsyncClient, path: str):
    assert (await client.get(path, headers={"Authorization": "Bearer wrong", "User-Agent": "Bun/1.3.0"})).status_code == 200
