"""GET /readyz: what the server relies on the database for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import psycopg

from cmserver.app import create_app
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.notifications import PROBE, NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast, Server


@asynccontextmanager
async def asking(settings: Settings, db: Db, *channels: str) -> AsyncGenerator[tuple[httpx.AsyncClient, NotificationListener]]:
    """A server that listens on these channels."""
    notifications = NotificationListener(db.url)
    app = create_app(settings, db, notifications, JobNotifier(db, notifications), secret=b"secret")
    listening = asyncio.create_task(notifications.listen(list(channels)))
    transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://cmserver") as client:
            yield client, notifications
    finally:
        listening.cancel()


async def test_ready_is_who_hears_what_he_notifies_and_many_who_ask_cost_one_notification(settings: Settings, db: Db):
    async with asking(settings, db, PROBE) as (client, notifications):
        payloads: list[str] = []
        notifications.subscribe(PROBE, payloads.append)

        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(10)))

    assert {answered.status_code for answered in answers} == {200}
    assert len([payload for payload in payloads if payload]) == 1


async def test_not_ready_is_who_does_not_hear_what_he_notifies(settings: Settings, db: Db):
    async with asking(settings, db, "another_channel") as (client, _):
        answered = await client.get("/readyz")

    assert answered.status_code == 503
    assert "NOTIFY" in answered.json()["message"]


async def test_not_ready_is_whose_requests_no_policy_binds(settings: Settings, database: str):
    async with Db(DatabaseUrls(owner=database, tenant=database), size=1) as db, asking(settings, db, PROBE) as (client, _):
        answered = await client.get("/readyz")

    assert answered.status_code == 503
    assert "cmserver_request" in answered.json()["message"]


async def test_not_ready_is_where_a_policy_no_longer_binds(settings: Settings, database: str, db: Db):
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("ALTER TABLE turns DISABLE ROW LEVEL SECURITY")
        owner.execute("ALTER TABLE observations DISABLE ROW LEVEL SECURITY")

    async with asking(settings, db, PROBE) as (client, _):
        answered = await client.get("/readyz")

    assert answered.status_code == 503


async def test_a_request_whose_query_runs_too_long_is_answered_with_its_own_code(
    settings: Settings, server: Server, database: str, cast: Cast
):
    async with (
        Db(server.urls_of(database), size=2, statement_timeout_seconds=0.2) as impatient,
        asking(settings, impatient) as (client, _),
        await psycopg.AsyncConnection.connect(database) as owner,
    ):
        await owner.execute("LOCK TABLE observations IN ACCESS EXCLUSIVE MODE")
        answered = await client.post("/v1/search", json={"query": "retry"}, headers=cast.alice.headers)

    assert answered.status_code == 503
    assert answered.json()["error"] == "StatementTimeout"
    assert int(answered.headers["retry-after"]) >= 1
