"""The statement that stores an event names its team and is bound by it, or stores nothing."""

from __future__ import annotations

import httpx
import psycopg
import pytest

from cmserver.app import create_app
from cmserver.base import tenant_role
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast

EVENT = {"projectId": "github.com/acme/orders", "eventType": "tool_use", "payload": {"tool_name": "Read"}}


async def _anything_goes(_conn: Conn) -> None:
    pass


@pytest.mark.parametrize("is_batch", [False, True])
async def test_no_event_is_stored_on_a_connection_of_the_owner(
    settings: Settings, database: str, cast: Cast, monkeypatch: pytest.MonkeyPatch, is_batch: bool
):
    """As behind a pooler that answers the look at a new connection from one of its own, and the statement from another."""
    monkeypatch.setattr(tenant_role, "check_tenant_role", _anything_goes)
    async with Db(DatabaseUrls(owner=database, tenant=database), size=2) as db:
        hub = NotificationListener(database)
        app = create_app(settings, db, hub, JobNotifier(db, hub), secret=b"secret")
        transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
        async with httpx.AsyncClient(transport=transport, base_url="http://cmserver", headers=cast.alice.headers) as client:
            path, body = ("/v1/events/batch", [EVENT, EVENT]) if is_batch else ("/v1/events", EVENT)
            answered = await client.post(path, json=body)

    assert answered.status_code == 503
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM agent_events").fetchone() == (0,)
