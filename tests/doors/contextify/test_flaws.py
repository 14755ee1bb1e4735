"""What Contextify does wrong, by running it, and these routes do not."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.embeddings.query_embedder import QueryEmbedder
from tests.conftest import Cast, bound_to, mint
from tests.doors.contextify.situations import API, Contextify
from tests.make import Make
from tests.recall.search.conftest import vectors
from tests.recall.search.test_filters import FakeEmbedder
from tests.recall.search.tools import Vectors
from tests.rows import rows
from tests.steward.tools import insert_job
from tests.table import try_rows

__all__ = ["vectors"]  # a fixture
NOBODY = "01980000-0000-7000-8000-000000000001"
"""The id of no memory. The names of tests must be the same in each process."""


@pytest.fixture
def visitor(guest: httpx.AsyncClient) -> Contextify:
    return Contextify(guest)


async def remaining(db: Db, memory_id: str) -> tuple[float | None, int | None]:
    """For how long the memory will live since it was made, in seconds, and its lifetime."""
    (row,) = await rows(
        db,
        "SELECT extract(epoch FROM expires_at - created_at)::float8 AS left, ttl_seconds FROM observations WHERE id = %s",
        memory_id,
    )
    return row["left"], row["ttl_seconds"]


async def test_reading_extends_a_life_by_half_of_it(visitor: Contextify, db: Db):
    memory = await visitor.memory("Short", "Lives for a hundred seconds.", ttl_seconds=100)

    await visitor.call("GET", f"/memories/{memory['id']}")
    await visitor.call("POST", "/memories/search", {"query": "hundred seconds", "project_id": visitor.project})

    assert await remaining(db, memory["id"]) == (200.0, 100)


async def test_search_hits_promote_and_readings_leave_updated_at(visitor: Contextify):
    memory = await visitor.memory("Found often", "What is found five times is worth keeping.")
    for _ in range(4):
        await visitor.call("POST", "/memories/recall", {"query": "worth keeping", "project_id": visitor.project})

    read = await visitor.call("GET", f"/memories/{memory['id']}")

    assert read["access_count"] == 5, "this reading counts, too"
    assert "expires_at" not in read
    assert read["updated_at"] == memory["updated_at"]


async def test_suggestions_are_kept(visitor: Contextify, db: Db):
    one = "The worker retries an upload three times with a growing pause between the attempts"
    first = await visitor.memory("Retry of uploads", f"{one}.", importance=0.9)
    near = await visitor.store("Retry of uploads", f"{one}, and the fourth failure is written to the table of dead letters.")
    listed = await visitor.call("GET", f"/consolidation/suggestions?project_id={visitor.project}")

    assert near["action"] == "created_with_suggestions", near
    assert [suggestion["memory"]["id"] for suggestion in near["suggestions"]] == [first["id"]]
    assert 0 < near["suggestions"][0]["similarity"] < 1
    assert listed["total"] == 1
    (suggestion,) = listed["suggestions"]
    assert {suggestion["memory_a_id"], suggestion["memory_b_id"]} == {first["id"], near["memory"]["id"]}
    assert suggestion["memory_a"]["id"] == suggestion["memory_a_id"]
    assert (suggestion["status"], suggestion["project_id"]) == ("pending", visitor.project)
    assert (await visitor.call("GET", "/stats"))["pending_suggestions"] == 1

    path = f"/consolidation/suggestions/{suggestion['id']}"
    assert await visitor.call("PUT", path, {"status": "rejected"}) == {"status": "rejected", "id": suggestion["id"]}
    assert (await visitor.call("GET", f"/memories/duplicates?project_id={visitor.project}"))["total"] == 0
    (rejected,) = (await visitor.call("GET", "/consolidation/suggestions?status=rejected"))["suggestions"]
    assert rejected["status"] == "dismissed"
    assert rejected["resolved_at"]
    await visitor.call("PUT", path, {"status": "accepted"}, status=409)


async def test_an_accepted_suggestion_is_merged(visitor: Contextify):
    one = "The worker retries an upload three times with a growing pause between the attempts"
    first = await visitor.memory("Retry of uploads", f"{one}.")
    near = await visitor.store("Retry of uploads", f"{one}, and the fourth failure is written to the table of dead letters.")
    (suggestion,) = (await visitor.call("GET", "/memories/duplicates"))["suggestions"]

    await visitor.call("PUT", f"/consolidation/suggestions/{suggestion['id']}", {"status": "accepted"})

    merged = await visitor.call("GET", f"/memories/{first['id']}")
    assert merged["merged_from"] == [near["memory"]["id"]]


async def test_merged_from_grows_and_never_names_itself(visitor: Contextify):
    target, second, third = await visitor.three_memories()
    for source in (second, third):
        await visitor.call("POST", f"/memories/{target['id']}/merge", {"source_ids": [source["id"], target["id"]]})

    merged = await visitor.call("GET", f"/memories/{target['id']}")

    assert merged["merged_from"] == [second["id"], third["id"]]
    assert merged["version"] == 3


async def test_no_project_is_not_any_project_and_a_type_is_not_another(visitor: Contextify):
    text = ("Lock order", "Orders are locked before stock, everywhere.")
    here = await visitor.memory(*text, type="problem")

    stored = {
        "project_id": await visitor.call(
            "POST", "/memories", {"title": text[0], "content": text[1], "type": "problem"}, status=201
        ),
        "type": await visitor.store(*text, type="general"),
    }

    assert {name: result["action"] for name, result in stored.items()} == dict.fromkeys(stored, "created")
    assert "project_id" not in stored["project_id"]["memory"]
    context = await visitor.call("POST", f"/context/{visitor.project}")
    assert stored["project_id"]["memory"]["id"] not in {memory["id"] for memory in context}
    assert here["id"] in {memory["id"] for memory in context}


async def test_one_memory_however_many_store_it_at_once(visitor: Contextify):
    results = await asyncio.gather(*(visitor.store("At once", "Sixteen clients store the same.") for _ in range(16)))

    assert len({result["memory"]["id"] for result in results}) == 1
    assert sorted(result["action"] for result in results) == ["created", *["updated"] * 15]


@pytest.mark.parametrize("project", ["github.com/acme/orders", "/home/alice/work/orders", "orders"])
async def test_a_context_is_found_however_its_slashes_are_sent(visitor: Contextify, project: str):
    memory = await visitor.memory("In context", "Of that project.", project_id=project)

    raw = await visitor.call("POST", f"/context/{project}")
    encoded = await visitor.call("POST", f"/context/{project.replace('/', '%2F')}")

    assert [found["id"] for found in raw] == [memory["id"]]
    assert encoded == raw


BAD: list[tuple[str, str, object, int]] = [
    ("POST", "/memories", {"title": "only"}, 400),
    ("POST", "/memories", {"title": " ", "content": "x"}, 400),
    ("POST", "/memories", {"title": "t", "content": "c", "scope": "galaxy"}, 400),
    ("POST", "/memories", {"title": "t", "content": "c", "importance": 1.5}, 400),
    ("POST", "/memories", {"title": "t", "content": "c", "ttl_seconds": 0}, 400),
    ("POST", "/memories", {"title": "t", "content": "c", "tags": "one"}, 400),
    ("POST", "/memories/search", {}, 400),
    ("POST", "/memories/search", {"query": "x", "type": "poem"}, 400),
    ("POST", "/memories/recall", {"query": "x", "limit": -1}, 400),
    ("POST", "/memories/recall", {"query": "x", "tags": ["\0"]}, 400),
    ("GET", "/memories/12", None, 400),
    ("GET", f"/memories/{NOBODY}", None, 404),
    ("PUT", f"/memories/{NOBODY}", {}, 404),
    ("DELETE", f"/memories/{NOBODY}", None, 404),
    ("POST", f"/memories/{NOBODY}/promote", None, 404),
    ("GET", f"/memories/{NOBODY}/related", None, 404),
    ("POST", "/relationships", {"from_memory_id": NOBODY, "to_memory_id": NOBODY, "relationship": "CAUSES"}, 404),
    ("POST", "/relationships", {"from_memory_id": NOBODY, "to_memory_id": NOBODY, "relationship": ""}, 400),
    ("POST", "/relationships", {"from_memory_id": "x", "to_memory_id": NOBODY, "relationship": "CAUSES"}, 400),
    ("GET", "/consolidation/log?target_id=x", None, 400),
    ("GET", "/steward/runs?limit=0", None, 400),
    ("POST", "/memories/consolidate", {}, 400),
]


@try_rows(("method", "path", "body", "status"), BAD)
async def test_what_is_wrong_is_refused_in_a_sentence(visitor: Contextify, method: str, path: str, body: object, status: int):
    refused = await visitor.call(method, path, body, status=status)

    assert isinstance(refused["error"], str)
    assert "SQL" not in refused["error"]


async def test_a_body_that_is_no_json_is_refused(guest: httpx.AsyncClient):
    response = await guest.post(f"{API}/memories", content=b"{", headers={"Content-Type": "application/json"})

    assert response.status_code == 400
    assert response.json()["error"]


async def test_lists_are_never_null(visitor: Contextify):
    nothing = {
        "search": await visitor.call("POST", "/memories/search", {"query": "x"}),
        "list": await visitor.call("POST", "/memories/search", {"query": "*"}),
        "context": await visitor.call("POST", "/context/nobody"),
        "log": await visitor.call("GET", "/consolidation/log"),
    }
    memory = await visitor.memory("One", "Without tags.")
    related = await visitor.call("GET", f"/memories/{memory['id']}/related")

    assert [name for name, value in nothing.items() if value != []] == []
    assert related == {"memories": [], "relationships": []}
    assert (memory["tags"], memory["merged_from"]) == ([], [])


async def test_all_memories_can_be_listed_page_by_page(visitor: Contextify):
    stored = [await visitor.memory(f"Note {number}", f"{number * 7919} is its only number.") for number in range(7)]

    pages = [
        await visitor.call("POST", "/memories/search", {"query": "*", "project_id": visitor.project, "limit": 3, "offset": offset})
        for offset in (0, 3, 6)
    ]

    listed = [result["memory"]["id"] for page in pages for result in page]
    assert listed == [memory["id"] for memory in reversed(stored)]
    assert {result["match_type"] for page in pages for result in page} == {"list"}


async def test_results_can_be_read_page_by_page(visitor: Contextify):
    words = ("amber", "birch", "copper", "dune", "ember", "fjord")
    for word in words:
        await visitor.memory(f"Harbour {word}", f"A ship named {word} lies in the harbour.")

    pages = [
        await visitor.call(
            "POST", "/memories/search", {"query": "harbour", "project_id": visitor.project, "limit": 2, "offset": offset}
        )
        for offset in (0, 2, 4, 6)
    ]

    assert [len(page) for page in pages] == [2, 2, 2, 0]
    assert len({result["memory"]["id"] for page in pages for result in page}) == len(words)


FILTERS: list[tuple[dict[str, object], set[str]]] = [
    ({"type": "fix"}, {"fix"}),
    ({"type": "general"}, {"general"}),
    ({"scope": "global"}, {"general"}),
    ({"scope": "project"}, {"fix", "decision"}),
    ({"agent_source": "Codex"}, {"fix"}),
    ({"tags": ["DB"]}, {"fix", "decision"}),
    ({"tags": ["db", "pool"]}, {"fix"}),
    ({"min_importance": 0.6}, {"decision"}),
    ({"min_importance": 0.6, "type": "fix"}, set()),
]


@pytest.mark.parametrize("query", ["pool connections", "*"])
async def test_filters_hold_together(visitor: Contextify, query: str):
    await visitor.memory(
        "Fix of the pool", "The connections of the pool are closed.", type="fix", tags=["db", "pool"], agent_source="codex"
    )
    await visitor.memory("Size of the pool", "Twenty connections were chosen.", type="decision", tags=["DB"], importance=0.7)
    await visitor.memory("Word for the pool", "A pool of connections is a pool.", type="poem", scope="global")

    found: list[set[str]] = []
    for filters, _ in FILTERS:
        results = await visitor.call("POST", "/memories/search", {"query": query, "project_id": visitor.project, **filters})
        found.append({result["memory"]["type"] for result in results})

    assert found == [types for _, types in FILTERS]


async def test_no_web_page_reads_or_writes(guest: httpx.AsyncClient):
    page = {"Origin": "https://evil.example"}

    preflight = await guest.options(f"{API}/memories", headers={**page, "Access-Control-Request-Method": "POST"})
    read = await guest.get(f"{API}/stats", headers=page)
    written = await guest.post(f"{API}/memories", json={"title": "t", "content": "c"}, headers=page)
    form = await guest.post(f"{API}/context/x", headers={"Content-Type": "text/plain"})

    for response in (preflight, read, written, form):
        assert not [name for name in response.headers if name.startswith("access-control")]
    assert [response.status_code for response in (preflight, read, written, form)] == [405, 401, 401, 401]


async def test_request_and_session_come_back_and_are_counted(guest: httpx.AsyncClient, db: Db):
    headers = {"X-Request-ID": "req-1", "X-Session-ID": "session-7"}

    response = await guest.post(f"{API}/memories/recall", json={"query": "anything"}, headers=headers)
    refused = await guest.get(f"{API}/memories/{uuid4()}", headers=headers)

    for answered in (response, refused):
        assert (answered.headers["X-Request-ID"], answered.headers["X-Session-ID"]) == ("req-1", "session-7")
    assert await rows(db, "SELECT event_type, session_id, request_id, query_text, hit_count FROM memory_telemetry") == [
        {"event_type": "recall_attempt", "session_id": "session-7", "request_id": "req-1", "query_text": None, "hit_count": 0}
    ]


async def test_a_secret_in_a_query_or_a_header_is_not_kept(visitor: Contextify, guest: httpx.AsyncClient, db: Db):
    secret = "ghp_" + "a1B2" * 9
    for _ in range(2):  # the repeat, too
        await visitor.memory("Token", f"The token is {secret}, keep it.", tags=[secret], project_id="")
    await visitor.memory("Another", "So that the project is there.")

    body = {"query": f"token {secret}", "project_id": visitor.project}
    response = await guest.post(f"{API}/memories/recall", json=body, headers={"X-Session-ID": secret})

    kept = await rows(db, "SELECT * FROM memory_telemetry") + await rows(db, "SELECT content, title, concepts FROM observations")
    assert len(kept) >= 4
    assert secret not in json.dumps(kept, default=str)
    assert "[redacted:" in str([row.get("query_text") for row in kept])
    assert "X-Session-ID" not in response.headers


async def test_a_change_of_an_old_version_is_refused(visitor: Contextify):
    memory = await visitor.memory("Changed twice", "By two who do not know of each other.")
    path = f"/memories/{memory['id']}"

    first = await visitor.call("PUT", path, {"content": "By the first of them.", "version": 1})
    await visitor.call("PUT", path, {"content": "By the second.", "version": 1}, status=409)
    unchanged = await visitor.call("PUT", path, {})

    assert (first["version"], unchanged["version"], unchanged["content"]) == (2, 2, "By the first of them.")


async def test_every_field_can_be_changed(visitor: Contextify):
    memory = await visitor.memory("All of it", "Before.", importance=0.3)
    fields = {"title": "Everything", "content": "After.", "summary": "Short", "tags": ["x"], "importance": 0.85, "type": "workflow"}

    changed = await visitor.call("PUT", f"/memories/{memory['id']}", {**fields, "scope": "global"})

    assert {name: changed[name] for name in fields} == fields
    assert changed["scope"] == "global"
    assert "expires_at" not in changed, "so important, it is permanent"


LIFETIMES: list[tuple[dict[str, object], int | None]] = [
    ({}, 86_400),
    ({"importance": 0.79}, 86_400),
    ({"importance": 0.8}, None),
    ({"importance": 0.8, "ttl_seconds": 60}, None),
    ({"importance": 0.1, "ttl_seconds": 60}, 60),
]


@pytest.mark.parametrize(("fields", "ttl"), LIFETIMES)
async def test_importance_decides_how_long_a_memory_lives(visitor: Contextify, fields: dict[str, object], ttl: int | None):
    memory = await visitor.memory("Life", "Long or short.", **fields)

    assert memory.get("ttl_seconds") == ttl


async def test_what_has_expired_is_not_found(visitor: Contextify, db: Db):
    memory = await visitor.memory("Over", "Its time is over.", ttl_seconds=60)
    await rows(db, "UPDATE observations SET expires_at = now() - interval '1 second' WHERE id = %s", memory["id"])

    await visitor.call("GET", f"/memories/{memory['id']}", status=404)
    await visitor.call("PUT", f"/memories/{memory['id']}", {"title": "x"}, status=404)
    assert await visitor.call("POST", "/memories/search", {"query": "time over", "project_id": visitor.project}) == []
    assert (await visitor.call("GET", "/stats"))["total_memories"] == 0


async def test_a_merged_memory_can_be_deleted(visitor: Contextify):
    target, source, _ = await visitor.three_memories()
    await visitor.call("POST", f"/memories/{target['id']}/merge", {"source_ids": [source["id"]]})

    await visitor.call("DELETE", f"/memories/{source['id']}")

    assert (await visitor.call("GET", f"/memories/{target['id']}"))["merged_from"] == [source["id"]]
    await visitor.call("GET", f"/memories/{source['id']}", status=404)


async def test_a_repeat_adds_its_tags(visitor: Contextify):
    first = await visitor.memory("Tagged", "The same text twice.", tags=["a"])

    again = await visitor.store("Tagged", "The same text twice.", tags=["b", "a"], importance=0.9)

    assert again["memory"]["tags"] == ["a", "b"]
    assert again["memory"]["id"] == first["id"]
    assert "expires_at" not in again["memory"]


async def test_what_guests_may_not(visitor: Contextify):
    for method, path in [
        ("POST", "/admin/normalize-projects"),
        ("POST", "/steward/run-once"),
        ("PUT", "/steward/mode"),
        ("POST", f"/steward/jobs/{NOBODY}/retry"),
        ("POST", f"/steward/jobs/{NOBODY}/cancel"),
        ("POST", "/steward/policies/rollback"),
    ]:
        assert (await visitor.call(method, path, {}, status=401))["error"]


async def test_the_steward_takes_orders_of_admins(client: httpx.AsyncClient, cast: Cast, db: Db):
    async def call(method: str, path: str, body: dict[str, object] | None = None) -> tuple[int, Any]:
        answer = await client.request(method, f"{API}/steward{path}", json=body or {}, headers=cast.alice.headers)
        return answer.status_code, answer.json()

    assert (await call("POST", "/run-once"))[0] == 409
    status, switched = await call("PUT", "/mode", {"dry_run": True})
    assert (status, switched["enabled"], switched["dry_run"], switched["paused"]) == (200, True, True, False)
    assert (await call("PUT", "/mode", {"paused": True}))[1]["dry_run"] is True
    assert (await call("PUT", "/mode", {"paused": False}))[1]["paused"] is False
    assert await call("POST", "/run-once") == (200, {"status": "triggered"})
    async with db.system() as conn:
        job = {"id": await insert_job(conn, cast.alice.team_id, cast.alice.project.id, status="queued")}
    assert await call("POST", f"/jobs/{job['id']}/cancel") == (200, {"status": "cancelled", "id": str(job["id"])})
    assert await call("POST", f"/jobs/{job['id']}/retry") == (200, {"status": "queued", "id": str(job["id"])})
    events = (await call("GET", f"/jobs/{job['id']}/events"))[1]["events"]
    assert [event["event_type"] for event in events] == ["job_created", "job_completed", "job_created"]
    assert (await call("POST", "/jobs/1/retry"))[0] == 404
    assert (await call("POST", f"/jobs/{NOBODY}/cancel"))[0] == 404
    assert (await call("POST", "/policies/rollback", {"policy_key": "derive.novelty"}))[0] == 409
    assert (await call("POST", "/policies/rollback", {"policy_key": "colour"}))[0] == 404
    assert (await call("GET", "/policies/history?policy_key=derive.novelty"))[1]["items"] == []


async def test_names_of_old_projects_get_their_canonical_form(client: httpx.AsyncClient, cast: Cast, db: Db):
    await rows(
        db,
        "INSERT INTO projects (id, team_id, canonical_id, name)"
        " VALUES (gen_random_uuid(), %s, 'git@github.com:Acme/Old.git', 'old')",
        cast.alice.team_id,
    )

    first = await client.post(f"{API}/admin/normalize-projects", headers=cast.alice.headers)
    second = await client.post(f"{API}/admin/normalize-projects", headers=cast.alice.headers)

    assert (first.json()["updated"], second.json()["updated"]) == (1, 0)
    found = await rows(db, "SELECT canonical_id FROM projects WHERE name = 'old'")
    assert found == [{"canonical_id": "github.com/acme/old"}]


async def test_what_hooks_and_people_recorded_is_found_here_and_the_other_way_round(client: httpx.AsyncClient, cast: Cast):
    headers = cast.alice.headers
    project = cast.alice.project.canonical_id
    native = {"title": "Native", "narrative": "Written by hand.", "type": "bugfix", "projectId": project}
    typed = {**native, "title": "Typed", "narrative": "With a word of its own.", "callerType": "recipe"}
    for body in (native, typed):
        assert (await client.post("/v1/observations", json=body, headers=headers)).status_code == 201
    stored = await client.post(
        f"{API}/memories",
        json={"title": "Theirs", "content": "Stored by a client.", "type": "fix", "project_id": project},
        headers=headers,
    )

    memories = (await client.post(f"{API}/memories/search", json={"query": "*", "project_id": project}, headers=headers)).json()
    shown = (await client.get(f"/v1/observations/{stored.json()['memory']['id']}", headers=headers)).json()["observation"]

    types = {result["memory"]["title"]: result["memory"]["type"] for result in memories}
    assert types == {"Native": "fix", "Typed": "general", "Theirs": "fix"}
    assert (shown["type"], shown["callerType"], shown["origin"]) == ("bugfix", "fix", "api")


async def test_a_key_for_another_project_or_without_the_scope_may_not(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice, bound = cast.alice, await bound_to(db, cast.alice, "billing")
    _, reader = await mint(db, alice.team_id, "reader", scopes=["observations:read"])
    body = {"title": "Hers", "content": "Of the project orders.", "project_id": alice.project.canonical_id}
    memory = (await client.post(f"{API}/memories", json=body, headers=alice.headers)).json()["memory"]

    async def status(method: str, path: str, headers: dict[str, str], json: object = None) -> int:
        return (await client.request(method, f"{API}{path}", headers=headers, json=json)).status_code

    assert await status("GET", f"/memories/{memory['id']}", bound.headers) == 404
    assert await status("DELETE", f"/memories/{memory['id']}", bound.headers) == 404
    assert await status("POST", "/memories", bound.headers, body) == 404
    assert await status("POST", "/memories", bound.headers, {"title": "t", "content": "c", "scope": "global"}) == 403
    assert await status("POST", "/memories", {"X-Api-Key": reader}, body) == 403
    assert await status("POST", "/admin/normalize-projects", {"X-Api-Key": reader}) == 403
    assert await status("GET", "/stats", {"X-Api-Key": reader}) == 200
    own = await client.post(f"{API}/memories", json={"title": "Own", "content": "Of billing."}, headers=bound.headers)
    assert own.json()["memory"]["project_id"] == "billing"


async def test_a_search_hides_nothing_however_little_it_fits(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors, monkeypatch: pytest.MonkeyPatch
):
    for n in range(20):
        vectors.give(await make.observation(project=cast.alice.project, title=f"A quokka {n}"), [1, n / 100])
    vectors.give(await make.observation(project=cast.alice.project, title="A quokka far away"), [-1, 0])
    monkeypatch.setattr(app.dependencies.get(QueryEmbedder), "embed", FakeEmbedder(vectors.near(1, 0)).embed)
    body = {"query": "where is the quokka", "project_id": cast.alice.project.canonical_id, "limit": 50}

    for path in ("search", "recall"):
        hits = (await client.post(f"{API}/memories/{path}", json=body, headers=cast.alice.headers)).json()
        assert (hits[-1]["memory"]["title"], hits[-1]["score"] < 0.05) == ("A quokka far away", True)
        assert hits == sorted(hits, key=lambda hit: -hit["score"])
