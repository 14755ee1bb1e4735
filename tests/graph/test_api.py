"""Entities over HTTP: listed, searched, made, merged, separated, related; and nobody sees another's."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.follow import try_lock
from cmserver.base.ids import new_id
from cmserver.graph import repository
from cmserver.graph.model import READER
from cmserver.graph.read_observations import read_new_observations
from tests.access.tools import until_it_waits_for_a_lock
from tests.conftest import Cast, Person, bound_to
from tests.make import Make

Json = dict[str, Any]


class Api:
    """Alice's key, or another's."""

    def __init__(self, client: httpx.AsyncClient, person: Person) -> None:
        self._client, self._headers = client, person.headers

    async def __call__(self, method: str, path: str, body: object = None, *, status: int = 200, **params: Any) -> Json:
        answer = await self._client.request(method, f"/v1{path}", json=body, headers=self._headers, params=params)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def names(self, **params: Any) -> list[str]:
        return [entity["name"] for entity in (await self("GET", "/entities", **params))["entities"]]

    async def id_of(self, name: str) -> str:
        return next(e["id"] for e in (await self("GET", "/entities", search=name))["entities"] if e["name"] == name)


@pytest.fixture
async def api(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make) -> Api:
    """Three observations: a_name in all of them, b_name in two, queue.py and Redis in one."""
    project = cast.alice.project
    await make.observation(project=project, title="`a_name` alone")
    await make.observation(project=project, title="`a_name` and `b_name`", files_modified=["src/queue.py"])
    await make.observation(project=project, title="`a_name` and `b_name` in Redis")
    await read_new_observations(db)
    return Api(client, cast.alice)


async def test_the_most_mentioned_come_first_page_by_page(api: Api):
    first = await api("GET", "/entities", limit=3)
    second = await api("GET", "/entities", limit=3, cursor=first["nextCursor"])

    counts = [(e["name"], e["mentionCount"]) for e in [*first["entities"], *second["entities"]]]
    assert counts[:2] == [("a_name", 3), ("b_name", 2)]
    assert sorted(counts[2:]) == [("Redis", 1), ("src/queue.py", 1)]
    assert second["nextCursor"] is None


async def test_filters(api: Api, cast: Cast):
    assert await api.names(type="file") == ["src/queue.py"]
    assert await api.names(search="QUEUE") == ["src/queue.py"]
    assert await api.names(search="%") == []
    assert await api.names(project=cast.alice.project.canonical_id, search="redis") == ["Redis"]


async def test_one_entity_has_its_mentions_and_what_stands_beside_it(api: Api):
    entity_id = await api.id_of("src/queue.py")

    near = await api("GET", f"/entities/{entity_id}")
    further = await api("GET", f"/entities/{entity_id}", depth=2)
    mentions = await api("GET", f"/entities/{entity_id}/mentions")

    assert sorted((n["name"], n["together"]) for n in near["neighbours"]) == [("a_name", 1), ("b_name", 1)]
    assert "Redis" in {n["name"] for n in further["neighbours"]}
    assert entity_id not in {n["id"] for n in further["neighbours"]}
    assert [(m["number"], m["title"]) for m in mentions["mentions"]] == [(2, "`a_name` and `b_name`")]


async def test_the_time_line_has_pages(api: Api):
    entity_id = await api.id_of("a_name")

    first = await api("GET", f"/entities/{entity_id}/mentions", limit=2)
    second = await api("GET", f"/entities/{entity_id}/mentions", limit=2, cursor=first["nextCursor"])

    assert [m["number"] for m in [*first["mentions"], *second["mentions"]]] == [3, 2, 1]


async def test_an_entity_made_twice_is_one_and_keeps_its_notes(api: Api, cast: Cast):
    new = {"projectId": cast.alice.project.canonical_id, "type": "person", "name": "Ana", "notes": "designs the map"}

    made = (await api("POST", "/entities", new, status=201))["entity"]
    again = (await api("POST", "/entities", {**new, "name": " ANA ", "notes": None}))["entity"]

    assert again["id"] == made["id"]
    assert again["notes"] == "designs the map"
    assert made["foundBy"] == "people"
    assert made["mentionCount"] == 0


async def test_what_is_no_entity_is_refused(api: Api, cast: Cast):
    project = cast.alice.project.canonical_id
    for body, status, path in (
        ({"type": "person", "name": "Ana"}, 400, "$.projectId"),
        ({"projectId": project, "type": "person", "name": "hello"}, 400, "$.name"),
    ):
        refused = await api("POST", "/entities", body, status=status)
        assert refused["issues"][0]["path"].startswith(path), refused
    assert await api.names(type="person") == []


async def test_notes_and_spelling_are_changed_but_no_other_name_is_given(api: Api):
    entity_id = await api.id_of("Redis")

    changed = (await api("PATCH", f"/entities/{entity_id}", {"name": "REDIS", "notes": "sk-ant-api03-" + "a" * 95}))["entity"]
    refused = await api("PATCH", f"/entities/{entity_id}", {"name": "Valkey"}, status=400)
    removed = (await api("PATCH", f"/entities/{entity_id}", {"notes": None}))["entity"]

    assert changed["name"] == "REDIS"
    assert "sk-ant" not in changed["notes"]
    assert refused["issues"][0]["path"] == "$.name"
    assert removed["notes"] is None
    assert removed["foundBy"] == "people"


async def test_a_merged_name_counts_for_the_other_until_it_is_separated(api: Api, db: Db, cast: Cast, make: Make):
    a, b = await api.id_of("a_name"), await api.id_of("b_name")
    queue = await api.id_of("src/queue.py")
    said = {"toId": queue, "label": "lives in"}
    await api("POST", f"/entities/{b}/relations", {**said, "evidence": [2]}, status=201)
    await api("POST", f"/entities/{a}/relations", {**said, "evidence": [1]}, status=201)

    merged = (await api("POST", f"/entities/{b}/merge", {"intoId": a}))["entity"]
    await make.observation(project=cast.alice.project, title="`b_name` once more")
    await read_new_observations(db)
    details = await api("GET", f"/entities/{b}")
    found = await api.names(search="b_name")
    separated = (await api("POST", f"/entities/{b}/separate"))["entity"]

    assert (merged["id"], merged["mentionCount"]) == (a, 3)
    assert (details["entity"]["id"], details["entity"]["mentionCount"]) == (a, 4)
    assert [alias["name"] for alias in details["aliases"]] == ["b_name"]
    assert [(relation["fromId"], relation["evidence"]) for relation in details["relations"]] == [(a, [1, 2])]
    assert found == ["a_name"]
    assert (separated["name"], separated["mentionCount"]) == ("b_name", 3)
    after = await api("GET", f"/entities/{a}")
    assert after["entity"]["mentionCount"] == 3
    assert [relation["evidence"] for relation in after["relations"]] == [[1]]
    assert [relation["evidence"] for relation in (await api("GET", f"/entities/{b}"))["relations"]] == [[2]]


async def test_a_relation_of_two_names_is_deleted_for_both(api: Api):
    a, b, queue = await api.id_of("a_name"), await api.id_of("b_name"), await api.id_of("src/queue.py")
    for entity in (a, b):
        relation = (await api("POST", f"/entities/{entity}/relations", {"toId": queue, "label": "uses"}, status=201))["relation"]
    await api("POST", f"/entities/{b}/merge", {"intoId": a})

    await api("DELETE", f"/entity-relations/{relation['id']}")
    await api("POST", f"/entities/{b}/separate")

    assert (await api("GET", f"/entities/{a}"))["relations"] == []
    assert (await api("GET", f"/entities/{b}"))["relations"] == []


async def test_merges_that_cannot_be(api: Api, db: Db, cast: Cast, make: Make):
    other = await bound_to(db, cast.alice, "github.com/acme/ledger")
    await make.observation(project=other.project, title="`c_name`")
    await read_new_observations(db)
    a, c = await api.id_of("a_name"), await api.id_of("c_name")

    for into, status in ((a, 400), (c, 400), (str(new_id()), 404)):
        refused = await api("POST", f"/entities/{a}/merge", {"intoId": into}, status=status)
        assert refused["issues"][0]["path"] == "$.intoId"
    await api("POST", f"/entities/{a}/separate", status=409)


async def test_relations_have_evidence_and_are_made_once(api: Api):
    a, b = await api.id_of("a_name"), await api.id_of("b_name")

    first = (await api("POST", f"/entities/{a}/relations", {"toId": b, "label": "calls", "evidence": [2]}, status=201))["relation"]
    again = (await api("POST", f"/entities/{a}/relations", {"toId": b, "label": "calls", "evidence": [3, 2]}, status=201))[
        "relation"
    ]
    missing = await api("POST", f"/entities/{a}/relations", {"toId": b, "label": "calls", "evidence": [99]}, status=400)
    itself = await api("POST", f"/entities/{a}/relations", {"toId": a, "label": "calls"}, status=400)
    await api("DELETE", f"/entity-relations/{first['id']}")

    assert again["id"] == first["id"]
    assert again["evidence"] == [2, 3]
    assert missing["issues"][0]["path"] == "$.evidence"
    assert itself["issues"][0]["path"] == "$.toId"
    assert (await api("GET", f"/entities/{a}"))["relations"] == []
    await api("DELETE", f"/entity-relations/{first['id']}", status=404)


async def test_a_deleted_entity_is_gone_with_its_mentions(api: Api):
    a = await api.id_of("a_name")

    await api("DELETE", f"/entities/{a}")

    await api("GET", f"/entities/{a}", status=404)
    assert "a_name" not in await api.names()


async def test_search_is_limited_to_what_mentions_an_entity_by_any_of_its_names(api: Api):
    a, queue = await api.id_of("b_name"), await api.id_of("src/queue.py")
    await api("POST", f"/entities/{queue}/merge", {"intoId": a})

    async def found(**filters: object) -> list[int]:
        return sorted(row["number"] for row in (await api("POST", "/search", {"query": "a_name", **filters}))["observations"])

    assert await found() == [1, 2, 3]
    assert await found(entity="B_NAME") == [2, 3]
    assert await found(entity="src/queue.py") == [2, 3]
    assert await found(entity="nobody") == []


async def test_one_that_is_deleted_at_the_same_moment_is_made_again_and_else_not_found(
    api: Api, client: httpx.AsyncClient, db: Db, cast: Cast
):
    alice = cast.alice
    other = await api.id_of("b_name")
    redis = {"projectId": str(alice.project.id), "name": "Redis", "type": "technology"}
    acts: list[tuple[int, str, str, Json]] = [
        (201, "POST", "/entities", redis),
        (404, "PATCH", "/entities/{id}", {"notes": "n"}),
        (404, "POST", f"/entities/{other}/relations", {"toId": "{id}", "label": "uses"}),
        (404, "DELETE", "/entities/{id}", {}),
        (409, "POST", "/entities/{id}/merge", {"intoId": other}),
    ]
    wrong: list[str] = []
    for status, method, path, sent in acts:
        await client.post("/v1/entities", json=redis, headers=alice.headers)
        entity_id = await api.id_of("Redis")
        body = {key: value.replace("{id}", entity_id) for key, value in sent.items()}
        async with db.tenant(alice.team_id) as conn:
            await repository.delete(conn, alice.team_id, UUID(entity_id))
            request = client.request(method, f"/v1{path.replace('{id}', entity_id)}", json=body or None, headers=alice.headers)
            acting = asyncio.create_task(request)
            await until_it_waits_for_a_lock(db, acting)
        answer = await acting
        if answer.status_code != status:
            wrong.append(f"{method} {path}: {answer.status_code} {answer.text}")
    assert wrong == []


async def test_a_merge_waits_for_who_reads_the_team(api: Api, db: Db, cast: Cast):
    entity_id, into = await api.id_of("a_name"), await api.id_of("b_name")
    async with db.tenant(cast.alice.team_id) as conn:
        assert await try_lock(conn, READER, cast.alice.team_id)
        merging = asyncio.create_task(api("POST", f"/entities/{entity_id}/merge", {"intoId": into}))
        await until_it_waits_for_a_lock(db, merging)
    assert (await merging)["entity"]["mentionCount"] == 3
