"""What ingest writes into the audit log: with the events, in the same statement, and for new ones only."""

from __future__ import annotations

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.ingest.test_api import event
from tests.rows import rows

Rows = list[dict[str, object]]


async def trace(db: Db) -> Rows:
    return await rows(
        db,
        "SELECT action, resource_type, resource_id, team_id, project_id, actor_id, api_key_id, request_id, details"
        " FROM audit_log WHERE action = 'events.received' ORDER BY id",
    )


async def test_an_event_and_its_job_are_noted_with_who_sent_it(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = cast.alice
    recorded = (await client.post("/v1/events", json=event(), headers={**alice.headers, "X-Request-Id": "r1"})).json()

    (received,) = await trace(db)
    origin = {
        "team_id": alice.team_id,
        "project_id": alice.project.id,
        "actor_id": "alice",
        "api_key_id": alice.principal.key_id,
        "request_id": "r1",
    }
    event_id, job_id = recorded["event"]["id"], recorded["generationJob"]["id"]
    assert received == origin | {
        "action": "events.received",
        "resource_type": "event",
        "resource_id": event_id,
        "details": {"events": [event_id], "jobs": [job_id]},
    }


async def test_a_batch_has_one_row_whatever_its_size(client: httpx.AsyncClient, cast: Cast, db: Db):
    bodies = [event(payload={"n": n}, contentSessionId=f"c{n % 3}") for n in range(50)]

    recorded = (await client.post("/v1/events/batch", json=bodies, headers=cast.alice.headers)).json()["events"]

    (received,) = await trace(db)
    assert (received["resource_type"], received["resource_id"]) == ("event_batch", None)
    assert received["details"] == {
        "events": [answer["event"]["id"] for answer in recorded],
        "jobs": [answer["generationJob"]["id"] for answer in recorded],
    }


async def test_each_project_of_a_batch_has_rows_of_its_own(client: httpx.AsyncClient, cast: Cast, db: Db):
    bodies = [event(), event(projectId="github.com/acme/other"), event(payload={"n": 2})]

    recorded = (await client.post("/v1/events/batch", json=bodies, headers=cast.alice.headers)).json()["events"]

    first, other, third = (answer["event"] for answer in recorded)
    received = {str(row["project_id"]): row for row in await trace(db)}
    jobs = [answer["generationJob"]["id"] for answer in recorded]
    assert received[first["projectId"]]["details"] == {"events": [first["id"], third["id"]], "jobs": [jobs[0], jobs[2]]}
    assert received[other["projectId"]]["details"] == {"events": [other["id"]], "jobs": [jobs[1]]}
    assert received[other["projectId"]]["resource_id"] == other["id"]


async def test_only_what_is_new_is_noted(client: httpx.AsyncClient, cast: Cast, db: Db):
    await client.post("/v1/events", json=event(), headers=cast.alice.headers)
    await client.post("/v1/events", json=event(), headers=cast.alice.headers)
    many = await client.post("/v1/events/batch", json=[event(), event(payload={"n": 1})], headers=cast.alice.headers)
    await client.post("/v1/events/batch", json=[event(), event(payload={"n": 1})], headers=cast.alice.headers)

    new = many.json()["events"][1]
    first, second = await trace(db)
    assert second["resource_id"] == new["event"]["id"] != first["resource_id"]
    assert second["details"] == {"events": [new["event"]["id"]], "jobs": [new["generationJob"]["id"]]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/events?generate=false", event()),
        ("/v1/events/batch?generate=false", [event(), event(payload=1)]),
        ("/v1/events?generate=false", event(eventType="user_prompt", contentSessionId="c1", payload={"prompt": "my secret plan"})),
    ],
)
async def test_where_nothing_is_queued_nothing_is_said_of_jobs(
    client: httpx.AsyncClient, cast: Cast, db: Db, path: str, body: object
):
    await client.post(path, json=body, headers=cast.alice.headers)

    (row,) = await trace(db)
    assert row["action"] == "events.received"
    assert isinstance(row["details"], dict)
    assert "jobs" not in row["details"]
    assert "secret" not in str(row)


async def test_a_refused_batch_leaves_no_trace(client: httpx.AsyncClient, cast: Cast, db: Db):
    await client.post("/v1/events/batch", json=[event(), event(eventType="")], headers=cast.alice.headers)

    assert await trace(db) == []
