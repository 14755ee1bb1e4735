"""The six routes of claude-mem's worker of version 4."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.rows import rows
from tests.table import try_rows

Json = dict[str, Any]
USE = {"tool_name": "Edit", "tool_input": '{"file_path": "client.py"}', "tool_output": '{"ok": true}', "prompt_number": 1}


async def call(client: httpx.AsyncClient, method: str, path: str, body: object = None) -> Json:
    response = await client.request(method, path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def init(client: httpx.AsyncClient, number: int = 7, **body: object) -> Json:
    return await call(client, "POST", f"/sessions/{number}/init", {"project": "shop", "userPrompt": "Add a retry", **body})


async def events(db: Db) -> list[Json]:
    return await rows(
        db,
        "SELECT event_type, canonical_id AS project, payload, e.metadata FROM agent_events e"
        " JOIN projects p ON p.id = e.project_id ORDER BY e.received_at, e.id",
    )


async def test_a_session_goes_its_way(guest: httpx.AsyncClient, db: Db):
    begun = await init(guest)
    used = await call(guest, "POST", "/sessions/7/observations", USE)
    again = await call(guest, "POST", "/sessions/7/observations", {**USE, "prompt_number": 2})
    turned = await call(guest, "POST", "/sessions/7/summarize", {"prompt_number": 2})
    status = await call(guest, "GET", "/sessions/7/status")

    (session,) = await rows(db, "SELECT id, content_session_id FROM server_sessions")
    assert begun == {"status": "initialized", "sessionDbId": 7, "port": 37877}
    assert (used, again) == ({"status": "queued", "queueLength": 1}, {"status": "queued", "queueLength": 2})
    assert turned == {"status": "queued", "queueLength": 2}
    assert status == {"sessionDbId": 7, "sdkSessionId": str(session["id"]), "project": "shop", "pendingMessages": 2}
    assert session["content_session_id"] == "v4:7"
    assert [(row["event_type"], row["project"]) for row in await events(db)] == [
        ("user_prompt", "shop"),
        ("tool_use", "shop"),
        ("tool_use", "shop"),
        ("turn_end", "shop"),
    ]


async def test_json_within_json_is_taken_out_and_other_text_is_left(guest: httpx.AsyncClient, db: Db):
    await call(guest, "POST", "/sessions/7/observations", {**USE, "tool_output": "[not json"})

    (event,) = await events(db)
    assert event["payload"] == {"tool_name": "Edit", "tool_input": {"file_path": "client.py"}, "tool_response": "[not json"}
    assert event["metadata"] == {"prompt_number": 1}


@pytest.mark.parametrize("what", ["observations", "summarize"])
async def test_a_session_that_nobody_has_begun_is_made(guest: httpx.AsyncClient, db: Db, what: str):
    answer = await call(guest, "POST", f"/sessions/9/{what}", {})

    assert answer["status"] == "queued"
    assert await rows(db, "SELECT content_session_id FROM server_sessions") == [{"content_session_id": "v4:9"}]


async def test_a_session_that_is_deleted_ends_and_loses_nothing(guest: httpx.AsyncClient, db: Db):
    await init(guest)
    await call(guest, "POST", "/sessions/7/observations", USE)

    answer = await call(guest, "DELETE", "/sessions/7")
    again = await call(guest, "DELETE", "/sessions/7")

    assert answer == again == {"status": "deleted", "sessionDbId": 7}
    assert await rows(db, "SELECT 1 FROM server_sessions WHERE ended_at IS NOT NULL")
    jobs = await rows(db, "SELECT DISTINCT source_type, status FROM observation_generation_jobs ORDER BY source_type")
    assert jobs == [{"source_type": kind, "status": "queued"} for kind in ("agent_event", "session_summary")]


async def test_a_number_that_comes_again_in_another_project_is_another_session(guest: httpx.AsyncClient, db: Db):
    """They count from 1 in a database of their own, which may be made anew."""
    await init(guest)
    await init(guest, project="kiosk")
    await call(guest, "POST", "/sessions/7/observations", USE)

    assert [row["project"] for row in await events(db)] == ["shop", "kiosk", "kiosk"]
    assert (await call(guest, "GET", "/sessions/7/status"))["project"] == "kiosk"


@pytest.mark.parametrize(("method", "path"), [("GET", "/sessions/8/status"), ("DELETE", "/sessions/8")])
async def test_what_is_not_there_is_not_found(
    guest: httpx.AsyncClient, client: httpx.AsyncClient, cast: Cast, method: str, path: str
):
    begun = await client.post("/sessions/8/init", json={"project": "shop"}, headers=cast.charlie.headers)

    response = await guest.request(method, path)

    assert (begun.status_code, response.status_code) == (200, 404)


@try_rows("number", ["1" * 17, "9" * 6000, "-1", "1.0", "x", "٣", "019aa000-0000-7000-8000-000000000000", ""])
async def test_only_numbers_are_sessions_here(guest: httpx.AsyncClient, number: str):
    for method, path in (
        ("GET", f"/sessions/{number}/status"),
        ("POST", f"/sessions/{number}/init"),
        ("DELETE", f"/sessions/{number}"),
    ):
        response = await guest.request(method, path, headers={"Content-Type": "application/json"})
        assert response.status_code == 404
