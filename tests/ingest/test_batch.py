"""All or nothing: whatever is wrong with one event of a batch, nothing at all is stored, and the answer says which one it was."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any
from uuid import uuid4

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.observations import repository as observations
from tests.conftest import Cast, mint
from tests.ingest.test_api import count, event
from tests.table import try_rows

TABLES = [
    "projects",
    "server_sessions",
    "turns",
    "agent_events",
    "observation_generation_jobs",
    "generation_lanes",
    "audit_log",
]


async def everything(db: Db) -> dict[str, int]:
    return {table: await count(db, table) for table in TABLES}


def deep() -> object:
    value: object = 1
    for _ in range(80):
        value = [value]
    return value


@pytest.fixture
async def others(client: httpx.AsyncClient, cast: Cast) -> dict[str, str]:
    """Ids of what Charlie has, and of what Alice has in another project."""
    charlies = await client.post("/v1/events", json=event(contentSessionId="c1"), headers=cast.charlie.headers)
    elsewhere = await client.post(
        "/v1/events", json=event(contentSessionId="c1", projectId="github.com/acme/other"), headers=cast.alice.headers
    )
    return {
        "their project": charlies.json()["event"]["projectId"],
        "their session": charlies.json()["event"]["serverSessionId"],
        "other session": elsewhere.json()["event"]["serverSessionId"],
        "no id": str(uuid4()),
    }


@try_rows("first", ["github.com/acme/orders", "github.com/acme/brand-new"])
@try_rows(
    ("field", "value", "status"),
    [
        ("eventType", "", 400),
        ("payload", deep(), 400),
        ("metadata", {"a": deep()}, 400),
        ("projectId", " ", 400),
        ("projectId", "their project", 404),
        ("projectId", "no id", 404),
        ("serverSessionId", "their session", 404),
        ("serverSessionId", "other session", 404),
        ("serverSessionId", "no id", 404),
    ],
)
async def test_one_wrong_event_and_nothing_is_stored(
    client: httpx.AsyncClient,
    cast: Cast,
    db: Db,
    others: dict[str, str],
    first: str,
    field: str,
    value: object,
    status: int,
):
    wrong = event(**{field: others.get(value, value) if isinstance(value, str) else value})
    prompt = event(eventType="user_prompt", payload={"prompt": "hi"}, contentSessionId="new-2")
    before = await everything(db)

    response = await client.post(
        "/v1/events/batch",
        json=[event(projectId=first, contentSessionId="new-1"), prompt, wrong, event(payload=2)],
        headers=cast.alice.headers,
    )

    assert response.status_code == status
    assert response.json()["issues"][0]["path"].startswith(f"$[2].{field}")
    assert await everything(db) == before


async def test_a_stranger_s_thing_is_answered_like_one_that_does_not_exist(
    client: httpx.AsyncClient, cast: Cast, others: dict[str, str]
):
    for field, theirs in [
        ("projectId", "their project"),
        ("serverSessionId", "their session"),
        ("serverSessionId", "other session"),
    ]:
        refusals: list[dict[str, object]] = []
        for named in (theirs, "no id"):
            response = await client.post("/v1/events", json=event(**{field: others[named]}), headers=cast.alice.headers)
            assert response.status_code == 404
            refusals.append(response.json() | {"requestId": None})
        assert refusals[0] == refusals[1]
        assert refusals[0]["issues"] == [{"path": f"$.{field}", "message": refusals[0]["message"]}]


async def test_a_key_of_one_project_sends_no_batch_that_touches_another(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, key = await mint(db, cast.alice.team_id, "bound", scopes=["*"], project_id=cast.alice.project.id)
    before = await everything(db)

    for other in ("github.com/acme/other", "github.com/acme/brand-new", str(uuid4())):
        response = await client.post("/v1/events/batch", json=[event(), event(projectId=other)], headers={"X-Api-Key": key})

        assert response.status_code == 404
        assert response.json()["issues"] == [{"path": "$[1].projectId", "message": "Project not found."}]
    assert await everything(db) == before


@pytest.mark.parametrize("size", [0, 501])
async def test_a_batch_of_a_wrong_size_stores_nothing(client: httpx.AsyncClient, cast: Cast, db: Db, size: int):
    before = await everything(db)

    response = await client.post("/v1/events/batch", json=[event(payload=n) for n in range(size)], headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"][0]["path"] == "$"
    assert await everything(db) == before


async def test_the_largest_batch_is_stored(client: httpx.AsyncClient, cast: Cast, db: Db):
    response = await client.post("/v1/events/batch", json=[event(payload=n) for n in range(500)], headers=cast.alice.headers)

    assert response.status_code == 201
    assert await count(db, "agent_events") == 500


async def test_an_event_twice_in_one_batch_is_one(client: httpx.AsyncClient, cast: Cast, db: Db):
    response = await client.post("/v1/events/batch", json=[event(), event()], headers=cast.alice.headers)

    first, again = response.json()["events"]
    assert first["event"]["id"] == again["event"]["id"]
    assert first["generationJob"]["id"] == again["generationJob"]["id"]
    assert await count(db, "agent_events") == 1


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/batch"])
async def test_a_body_that_was_cut_stores_nothing(client: httpx.AsyncClient, cast: Cast, db: Db, path: str):
    app: Any = client._transport.app  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType, reportPrivateUsage]
    whole = json.dumps(event() if path == "/v1/events" else [event()]).encode()
    messages = [{"type": "http.request", "body": whole, "more_body": True}, {"type": "http.disconnect"}]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return messages.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {cast.alice.key}".encode())],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("cmserver", 80),
        "client": ("test", 1),
        "root_path": "",
    }
    await app(scope, receive, send)

    assert sent == []
    assert await count(db, "agent_events") == 0


@pytest.mark.parametrize("source_event_id", [None, "toolu_1"])
async def test_the_first_of_two_twins_says_whether_anything_is_generated(
    client: httpx.AsyncClient, cast: Cast, db: Db, source_event_id: str | None
):
    body = event(sourceEventId=source_event_id)
    only_stored = await client.post("/v1/events?generate=false", json=body, headers=cast.alice.headers)
    again = await client.post("/v1/events", json=body, headers=cast.alice.headers)
    batch = await client.post("/v1/events/batch?wait=true", json=[body], headers=cast.alice.headers)

    assert again.json() == only_stored.json()
    assert again.json()["event"]["generate"] is False
    assert batch.json()["events"][0]["observationIds"] == []
    assert "waitTimedOut" not in batch.json()["events"][0]
    assert await count(db, "observation_generation_jobs") == 0


async def test_a_twin_that_was_to_be_generated_stays_so(client: httpx.AsyncClient, cast: Cast):
    first = await client.post("/v1/events", json=event(), headers=cast.alice.headers)
    again = await client.post("/v1/events?generate=false", json=event(), headers=cast.alice.headers)

    assert again.json()["generationJob"]["id"] == first.json()["generationJob"]["id"]


async def test_with_an_id_of_its_source_an_event_is_the_same_whatever_it_says(client: httpx.AsyncClient, cast: Cast, db: Db):
    first = await client.post("/v1/events", json=event(sourceEventId="t1"), headers=cast.alice.headers)
    other = await client.post("/v1/events", json=event(sourceEventId="t1", payload="another"), headers=cast.alice.headers)
    elsewhere = await client.post(
        "/v1/events", json=event(sourceEventId="t1", projectId="github.com/acme/other"), headers=cast.alice.headers
    )
    strangers = await client.post("/v1/events", json=event(sourceEventId="t1"), headers=cast.charlie.headers)

    assert other.json()["event"] == first.json()["event"]
    assert len({response.json()["event"]["id"] for response in (first, elsewhere, strangers)}) == 3
    assert await count(db, "agent_events") == 3


async def test_the_observations_of_a_batch_are_asked_for_once(
    client: httpx.AsyncClient, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    sizes: list[int] = []
    made_of_events = observations.made_of_events

    async def counted(conn: Any, team_id: Any, event_ids: Any) -> Any:
        sizes.append(len(event_ids))
        return await made_of_events(conn, team_id, event_ids)

    monkeypatch.setattr(observations, "made_of_events", counted)
    monkeypatch.setattr("cmserver.ingest.intake.WAIT_SECONDS", 0.01)
    await client.post("/v1/events/batch?wait=true", json=[event(payload=n) for n in range(5)], headers=cast.alice.headers)

    assert sizes == [5]
