"""Events and sessions over HTTP: what is stored, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from typing import Any

import httpx
import pytest
from psycopg import sql

from cmserver.base.db import Db
from cmserver.ingest import record
from cmserver.redaction.clean import CleanJson, clean
from tests.conftest import Cast, mint
from tests.table import try_rows


def event(**fields: object) -> dict[str, object]:
    return {
        "projectId": "github.com/acme/orders",
        "sourceType": "api",
        "eventType": "tool_use",
        "occurredAtEpoch": 1_795_300_000_000,
        "payload": {"tool_name": "Write", "tool_input": {"file_path": "a.py"}},
    } | fields


async def count(db: Db, table: str) -> int:
    async with db.system() as conn:
        cursor = await conn.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_an_event_is_stored_with_its_job_and_lane(client: httpx.AsyncClient, cast: Cast, db: Db):
    response = await client.post("/v1/events", json=event(contentSessionId="c1"), headers=cast.alice.headers)

    assert response.status_code == 201
    answer = response.json()
    assert answer["event"]["projectId"] == str(cast.alice.project.id)
    assert answer["event"]["payload"] == {"tool_name": "Write", "tool_input": {"file_path": "a.py"}}
    assert answer["event"]["occurredAtEpoch"] == 1_795_300_000_000
    assert answer["event"]["serverSessionId"] is not None
    job = answer["generationJob"]
    assert (job["status"], job["sourceType"], job["transport"]) == ("queued", "agent_event", "enqueued")
    assert job["bullmqJobId"] == job["id"]
    assert [await count(db, table) for table in ("agent_events", "observation_generation_jobs", "generation_lanes")] == [1, 1, 1]


async def test_the_same_event_twice_is_the_same_row_and_job(client: httpx.AsyncClient, cast: Cast, db: Db):
    for body in (event(), event(sourceEventId="toolu_1"), event(contentSessionId="c1")):
        first = await client.post("/v1/events", json=body, headers=cast.alice.headers)
        again = await client.post("/v1/events", json=body, headers=cast.bob.headers)

        assert first.json()["event"]["id"] == again.json()["event"]["id"]
        assert first.json()["generationJob"]["id"] == again.json()["generationJob"]["id"]

    assert await count(db, "agent_events") == 3
    assert await count(db, "observation_generation_jobs") == 3


async def test_the_same_event_sent_many_times_at_once_is_stored_once(client: httpx.AsyncClient, cast: Cast, db: Db):
    sent = [client.post("/v1/events", json=event(contentSessionId="c1"), headers=cast.alice.headers) for _ in range(12)]

    answers = await asyncio.gather(*sent)

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["event"]["id"] for answer in answers}) == 1
    assert await count(db, "server_sessions") == 1


async def test_two_payloads_that_differ_only_in_a_secret_are_two_events(client: httpx.AsyncClient, cast: Cast, db: Db):
    for secret in ("hunter2hunter2x", "hunter3hunter3y"):
        await client.post("/v1/events", json=event(payload={"text": f"password={secret}"}), headers=cast.alice.headers)

    assert await count(db, "agent_events") == 2
    async with db.system() as conn:
        cursor = await conn.execute("SELECT DISTINCT payload ->> 'text' FROM agent_events")
        assert await cursor.fetchall() == [("password=[redacted:password]",)]


async def test_generate_false_only_stores(client: httpx.AsyncClient, cast: Cast, db: Db):
    response = await client.post("/v1/events?generate=false", json=event(), headers=cast.alice.headers)

    assert "generationJob" not in response.json()
    assert response.json()["event"]["generate"] is False
    assert await count(db, "observation_generation_jobs") == 0


async def test_a_prompt_becomes_a_numbered_row_and_reaches_the_provider(client: httpx.AsyncClient, cast: Cast, db: Db):
    for text in ("first", "second"):
        body = event(eventType="user_prompt", contentSessionId="c1", payload={"prompt": text})
        response = await client.post("/v1/events", json=body, headers=cast.alice.headers)
        assert response.json()["generationJob"]["status"] == "queued"

    async with db.system() as conn:
        cursor = await conn.execute("SELECT prompt_number, prompt AS text FROM turns ORDER BY prompt_number")
        assert await cursor.fetchall() == [(1, "first"), (2, "second")]


async def test_prompts_that_arrive_at_once_get_different_numbers(client: httpx.AsyncClient, cast: Cast, db: Db):
    bodies = [event(eventType="user_prompt", contentSessionId="c1", payload={"prompt": f"p{n}"}) for n in range(8)]

    await asyncio.gather(*(client.post("/v1/events", json=body, headers=cast.alice.headers) for body in bodies))

    async with db.system() as conn:
        cursor = await conn.execute("SELECT prompt_number FROM turns ORDER BY prompt_number")
        assert [row[0] for row in await cursor.fetchall()] == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_a_batch_is_stored_in_its_order(client: httpx.AsyncClient, cast: Cast, db: Db):
    bodies = [event(contentSessionId=f"c{n % 3}", payload={"n": n}) for n in range(100)]

    response = await client.post("/v1/events/batch", json=bodies, headers=cast.alice.headers)

    assert response.status_code == 201
    assert [recorded["event"]["payload"]["n"] for recorded in response.json()["events"]] == list(range(100))
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT (e.payload ->> 'n')::int FROM observation_generation_jobs j"
            " JOIN agent_events e ON e.id = j.agent_event_id ORDER BY j.seq"
        )
        assert [row[0] for row in await cursor.fetchall()] == list(range(100))


@try_rows(
    ("wrong", "path"),
    [
        (event(eventType=""), "$[1].eventType"),
        (event(occurredAtEpoch="soon"), "$[1].occurredAtEpoch"),
        (event(sourceType="telepathy"), "$[1].sourceType"),
        ("no event", "$[1]"),
        (event(projectId=None), "$[1].projectId"),
    ],
)
async def test_one_bad_item_and_nothing_of_a_batch_is_stored(
    client: httpx.AsyncClient, cast: Cast, db: Db, wrong: object, path: str
):
    response = await client.post("/v1/events/batch", json=[event(), wrong, event()], headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["error"] == "ValidationError"
    assert response.json()["issues"][0]["path"] == path
    assert await count(db, "agent_events") == 0


@pytest.mark.parametrize("body", [[], {}, [event()] * 501])
async def test_a_batch_holds_1_to_500_events(client: httpx.AsyncClient, cast: Cast, body: Any):
    response = await client.post("/v1/events/batch", json=body, headers=cast.alice.headers)

    assert response.status_code == 400
    assert "1 to 500" in response.json()["message"]


async def test_wrong_fields_are_named_by_their_path(client: httpx.AsyncClient, cast: Cast):
    for body, path in [
        ({"projectId": "p"}, "$.eventType"),
        (event(serverSessionId="x"), "$.serverSessionId"),
        (event(metadata=1), "$.metadata"),
    ]:
        response = await client.post("/v1/events", json=body, headers=cast.alice.headers)

        assert response.status_code == 400
        assert response.json()["issues"][0]["path"] == path


async def test_a_body_that_is_no_json_or_too_deep_or_too_large_is_refused(client: httpx.AsyncClient, cast: Cast, db: Db):
    deep: object = 1
    for _ in range(80):
        deep = [deep]
    large = b'{"eventType": "x", "payload": "' + b"a" * 9_000_000 + b'"}'

    torn = await client.post("/v1/events", content=b'{"eventType": ', headers=cast.alice.headers)
    too_deep = await client.post("/v1/events", json=event(payload=deep), headers=cast.alice.headers)
    too_large = await client.post("/v1/events", content=large, headers=cast.alice.headers)

    assert [torn.status_code, too_deep.status_code, too_large.status_code] == [400, 400, 413]
    assert too_deep.json()["issues"][0]["path"].startswith("$.payload[0]")
    assert too_large.json()["error"] == "PayloadTooLarge"
    assert await count(db, "agent_events") == 0


async def test_nul_and_lone_surrogates_are_replaced_and_counted(client: httpx.AsyncClient, cast: Cast, db: Db):
    body = b'{"projectId": "p", "eventType": "x", "payload": {"text": "a\\u0000b\\ud800c"}}'

    response = await client.post("/v1/events", content=body, headers=cast.alice.headers)

    assert response.status_code == 201
    assert response.json()["event"]["payload"] == {"text": "a\ufffdb\ufffdc"}
    assert response.json()["event"]["metadata"]["cleaned"]["replaced"] == 2
    assert await count(db, "agent_events") == 1


UNSTORABLE = "A character that cannot be stored (NUL, or half of a surrogate pair) is in the text"


@try_rows("character", ["\x00", "\ud800"])
@try_rows(
    ("path", "name"),
    [
        ("/v1/events", "eventType"),
        ("/v1/events", "projectId"),
        ("/v1/events", "contentSessionId"),
        ("/v1/events", "platformSource"),
        ("/v1/events", "sourceEventId"),
        ("/v1/sessions/start", "projectId"),
        ("/v1/sessions/start", "externalSessionId"),
        ("/v1/sessions/start", "contentSessionId"),
        ("/v1/sessions/start", "agentId"),
        ("/v1/sessions/start", "agentType"),
        ("/v1/sessions/start", "platformSource"),
        ("/v1/projects", "canonicalId"),
        ("/v1/projects", "name"),
    ],
)
async def test_a_name_that_cannot_be_stored_is_refused_by_its_path(
    client: httpx.AsyncClient, cast: Cast, path: str, name: str, character: str
):
    fields: dict[str, object] = {"canonicalId": "x"} if path == "/v1/projects" else event()

    response = await client.post(path, content=json.dumps(fields | {name: f"a{character}b"}), headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"] == [{"path": f"$.{name}", "message": UNSTORABLE}]
    assert response.json()["message"] == f"{UNSTORABLE} at $.{name}."


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"serverSessionId": "\ud800"}, "$.serverSessionId"),
        ({"sourceType": "\ud800"}, "$.sourceType"),
        ({"\ud800": 1}, "$"),
        ({"payload": {"\ud800": [[[1]]] * 2}}, None),
    ],
)
async def test_half_a_surrogate_pair_anywhere_is_no_failure_of_ours(
    client: httpx.AsyncClient, cast: Cast, fields: dict[str, object], path: str | None
):
    single = await client.post("/v1/events", content=json.dumps(event(**fields)), headers=cast.alice.headers)
    batch = await client.post("/v1/events/batch", content=json.dumps([event(**fields)]), headers=cast.alice.headers)

    if path is None:
        assert [single.status_code, batch.status_code] == [201, 201]
    else:
        assert [single.status_code, batch.status_code] == [400, 400]
        assert single.json()["issues"] == [{"path": path, "message": UNSTORABLE}]
        assert batch.json()["issues"] == [{"path": path.replace("$", "$[0]"), "message": UNSTORABLE}]


async def test_the_path_to_what_is_too_deep_can_be_told_whatever_it_leads_through(client: httpx.AsyncClient, cast: Cast):
    deep: object = 1
    for _ in range(80):
        deep = {"\ud800": deep}

    response = await client.post("/v1/events", content=json.dumps(event(payload=deep)), headers=cast.alice.headers)
    started = await client.post("/v1/sessions/start", content=json.dumps(event(metadata={"a": deep})), headers=cast.alice.headers)

    assert [response.status_code, started.status_code] == [400, 400]
    assert response.json()["issues"][0]["path"].startswith("$.payload.\ufffd.\ufffd")
    assert started.json()["issues"][0]["path"].startswith("$.metadata.a.\ufffd")


@pytest.mark.parametrize("path", ["/v1/events", "/v1/sessions/start", "/v1/projects"])
async def test_metadata_is_made_safe_to_store(client: httpx.AsyncClient, cast: Cast, path: str):
    token = "ghp_" + "a1B2c3D4e5" * 4
    metadata = {"a\x00\ud800": "b\ud800\x00", "token": token, "text": "<private>mine</private> yours"}
    fields: dict[str, object] = {"canonicalId": "x"} if path == "/v1/projects" else event()

    response = await client.post(path, content=json.dumps(fields | {"metadata": metadata}), headers=cast.alice.headers)

    assert response.status_code == 201
    (metadata,) = [thing["metadata"] for thing in response.json().values() if "metadata" in thing]
    metadata.pop("cleaned", None)
    assert metadata == {
        "a\ufffd\ufffd": "b\ufffd\ufffd",
        "token": "[redacted:github_token]",
        "text": "[redacted:private] yours",
    }


def four_bytes_each(characters: int) -> str:
    """A text that PostgreSQL cannot compress, of characters of four bytes."""
    return "".join(map(chr, random.Random(5).choices(range(0x10000, 0x110000), k=characters)))


async def test_the_longest_ids_fit_into_every_index(client: httpx.AsyncClient, cast: Cast):
    longest, label = four_bytes_each(500), four_bytes_each(100)
    ids = {
        "projectId": longest,
        "contentSessionId": longest,
        "externalSessionId": longest,
        "sourceEventId": longest,
        "agentId": longest,
        "agentType": longest,
        "platformSource": label,
    }

    started = await client.post("/v1/sessions/start", json=ids, headers=cast.alice.headers)
    recorded = await client.post("/v1/events", json=event(**ids), headers=cast.alice.headers)

    assert [started.status_code, recorded.status_code] == [201, 201]
    assert started.json()["session"]["externalSessionId"] == longest
    assert recorded.json()["event"]["serverSessionId"] == started.json()["session"]["id"]
    for name, text in ids.items():
        refused = await client.post("/v1/sessions/start", json=ids | {name: text + "a"}, headers=cast.alice.headers)
        refused_event = await client.post("/v1/events", json=event(**(ids | {name: text + "a"})), headers=cast.alice.headers)
        known_to = [
            response
            for response, where in ((refused, "sourceEventId"), (refused_event, "externalSessionId agentId agentType"))
            if name not in where
        ]
        assert [response.status_code for response in known_to] == [400] * len(known_to)
        assert {response.json()["issues"][0]["path"] for response in known_to} == {f"$.{name}"}


@pytest.mark.parametrize(("chars", "is_aside"), [(10, False), (2_000, True)])
async def test_a_large_request_is_cleaned_in_threads(
    client: httpx.AsyncClient, cast: Cast, monkeypatch: pytest.MonkeyPatch, chars: int, *, is_aside: bool
):
    """Also where each of its events is small: it is the request that takes long."""
    threads: list[threading.Thread] = []

    def clean_and_note(value: object, *, at: str) -> CleanJson:
        threads.append(threading.current_thread())
        return clean(value, at=at)

    monkeypatch.setattr(record, "clean", clean_and_note)

    response = await client.post("/v1/events/batch", json=[event(payload="x" * chars)] * 20, headers=cast.alice.headers)

    assert response.status_code == 201
    assert [thread is not threading.main_thread() for thread in threads] == [is_aside] * 20


async def test_without_a_key_or_with_a_wrong_one_nothing_is_stored(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["observations:read"])
    _, writer = await mint(db, cast.alice.team_id, "writer", scopes=["memories:write"])

    none = await client.post("/v1/events", json=event())
    wrong = await client.post("/v1/events", json=event(), headers={"X-Api-Key": cast.alice.key[:-1] + "g"})
    weak = await client.post("/v1/events", json=event(), headers={"X-Api-Key": reader})
    older = await client.post("/v1/events", json=event(), headers={"X-Api-Key": writer})

    assert [none.status_code, wrong.status_code, weak.status_code, older.status_code] == [401, 403, 403, 201]
    assert none.headers["www-authenticate"] == "Bearer"
    assert "events:write" in weak.json()["message"]


async def test_a_key_bound_to_a_project_writes_nowhere_else(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, bound = await mint(db, cast.alice.team_id, "bound", scopes=["*"], project_id=cast.alice.project.id)
    headers = {"X-Api-Key": bound}

    own = await client.post("/v1/events", json=event(projectId=None), headers=headers)
    other = await client.post("/v1/events", json=event(projectId="github.com/acme/other"), headers=headers)
    mixed = await client.post("/v1/events/batch", json=[event(), event(projectId="github.com/acme/other")], headers=headers)

    assert [own.status_code, other.status_code, mixed.status_code] == [201, 404, 404]
    assert await count(db, "agent_events") == 1


async def test_a_session_is_found_by_its_agent_s_id_and_open_again_after_its_end(client: httpx.AsyncClient, cast: Cast):
    body = {"projectId": "github.com/acme/orders", "externalSessionId": "s1", "platformSource": "claude", "metadata": {"a": 1}}

    first = await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)
    again = await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)
    session = first.json()["session"]
    ended = await client.post(f"/v1/sessions/{session['id']}/end", json={}, headers=cast.alice.headers)
    ended_again = await client.post(f"/v1/sessions/{session['id']}/end", headers=cast.alice.headers)
    resumed = await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)

    assert [first.status_code, again.status_code, resumed.status_code] == [201, 200, 200]
    assert again.json()["session"]["id"] == session["id"]
    assert session["metadata"] == {"a": 1}
    assert ended.json()["session"]["endedAtEpoch"] is not None
    assert ended.json()["generationJob"]["sourceType"] == "session_summary"
    assert ended_again.json()["generationJob"]["id"] == ended.json()["generationJob"]["id"]
    assert resumed.json()["session"]["endedAtEpoch"] is None


async def test_an_event_finds_the_session_that_was_started_for_it(client: httpx.AsyncClient, cast: Cast):
    body = {"projectId": "github.com/acme/orders", "externalSessionId": "s1", "contentSessionId": "c1", "platformSource": "claude"}
    started = await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)

    by_content = await client.post("/v1/events", json=event(contentSessionId="c1"), headers=cast.alice.headers)

    assert by_content.json()["event"]["serverSessionId"] == started.json()["session"]["id"]


@pytest.mark.parametrize(
    "named",
    [
        "https://github.com/acme/orders.git",
        "git@github.com:acme/orders.git",
        "ssh://git@GitHub.com:22/acme/orders",
        "https://token@github.com/acme/orders/",
        "orders",
    ],
)
async def test_every_form_of_a_project_s_name_means_the_same_project(client: httpx.AsyncClient, cast: Cast, named: str):
    response = await client.post("/v1/events", json=event(projectId=named), headers=cast.alice.headers)

    assert response.json()["event"]["projectId"] == str(cast.alice.project.id)


async def test_an_unknown_path_and_a_wrong_method_are_told_in_json(client: httpx.AsyncClient, cast: Cast):
    missing = await client.get("/v1/nowhere", headers=cast.alice.headers)
    wrong = await client.put("/v1/events", headers={**cast.alice.headers, "X-Request-Id": "abc"})

    assert (missing.status_code, missing.json()["error"]) == (404, "NotFound")
    assert (wrong.status_code, wrong.json()["error"]) == (405, "MethodNotAllowed")
    assert wrong.headers["x-request-id"] == "abc" == wrong.json()["requestId"]


async def test_health_needs_no_key_and_readiness_looks_at_the_schema(client: httpx.AsyncClient, cast: Cast):
    health, ready, info = await client.get("/healthz"), await client.get("/readyz"), await client.get("/v1/info")
    response = await client.get("/v1/info", headers=cast.alice.headers)

    assert (health.status_code, health.json()["status"]) == (200, "ok")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert "team" not in info.json()
    assert response.json()["runtime"] == "cmserver"
    assert response.json()["team"]["name"] == "blue"
