"""Entities, relationships and overviews of the memory-service: each route as an honest client asks, and with wrong input."""

from __future__ import annotations

from typing import Any

import httpx

from cmserver.base.ids import new_id
from tests.conftest import Cast, Person
from tests.make import Make


class Service:
    """The routes, which stand at the root."""

    def __init__(self, client: httpx.AsyncClient, person: Person) -> None:
        self._client, self._headers = client, person.headers

    async def __call__(self, method: str, path: str, body: object = None, *, status: int = 200) -> Any:
        answer = await self._client.request(method, path, json=body, headers=self._headers)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()


async def test_entities_are_made_once_kept_and_deleted(client: httpx.AsyncClient, cast: Cast):
    service = Service(client, cast.alice)

    made = await service("POST", "/entities", {"name": "Ana", "type": "person", "notes": "draws maps"}, status=201)
    again = await service("POST", "/entities", {"name": "ana", "type": "person", "notes": None}, status=201)
    placed = {"name": "Ana", "type": "person", "projectId": str(cast.alice.project.id)}
    other = await service("POST", "/entities", placed, status=201)
    people = await service("GET", "/entities/by-type/person")
    read = await service("GET", f"/entities/{made['id']}")
    await service("DELETE", f"/entities/{made['id']}")

    assert again == made == read
    assert made["notes"] == "draws maps"
    assert made["createdAt"].endswith("Z")
    assert other["id"] != made["id"]
    assert [entity["id"] for entity in people] == [other["id"], made["id"]]
    await service("GET", f"/entities/{made['id']}", status=404)


async def test_relationships_lead_outwards_and_are_made_once(client: httpx.AsyncClient, cast: Cast):
    service = Service(client, cast.alice)
    ids = [
        (await service("POST", "/entities", {"name": name, "type": "technology"}, status=201))["id"]
        for name in ("Redis", "Sidekiq")
    ]
    relation = {"fromId": ids[1], "toId": ids[0], "label": "needs"}

    first = await service("POST", "/relationships", relation, status=201)
    again = await service("POST", "/relationships", relation, status=201)
    outbound = await service("GET", f"/entities/{ids[1]}/relationships")
    inbound = await service("GET", f"/entities/{ids[0]}/relationships")
    await service("DELETE", "/relationships", relation)

    assert again == first
    assert outbound == [first]
    assert inbound == []
    await service("DELETE", "/relationships", relation, status=404)


async def test_an_overview_is_null_then_made_on_demand(client: httpx.AsyncClient, cast: Cast, make: Make):
    service = Service(client, cast.alice)
    project = cast.alice.project.id

    nothing = await service("GET", f"/projects/{project}/overview")
    refused = await service("POST", f"/projects/{project}/summarize", status=422)
    await make.observation(project=cast.alice.project, title="Uses Redis", kind="summary", summary={"request": "Use Redis"})
    made = await service("POST", f"/projects/{project}/summarize", status=201)

    assert nothing is None
    assert refused["error"]
    assert "Use Redis" in made["content"]
    assert (made["sessionId"], made["projectId"]) == (None, str(project))
    assert await service("GET", f"/projects/{project}/overview") == made


async def test_wrong_input_changes_nothing(client: httpx.AsyncClient, cast: Cast):
    service = Service(client, cast.alice)
    here = (await service("POST", "/entities", {"name": "Redis", "type": "technology"}, status=201))["id"]
    cases: list[tuple[str, str, object, int]] = [
        ("POST", "/entities", {"type": "person"}, 400),
        ("POST", "/entities", {"name": "", "type": "person"}, 400),
        ("POST", "/entities", {"name": "Ana", "type": "animal"}, 400),
        ("POST", "/entities", {"name": "hello", "type": "person"}, 400),
        ("POST", "/entities", {"name": "Ana", "type": "person", "projectId": str(new_id())}, 404),
        ("GET", "/entities/by-type/animal", None, 400),
        ("GET", "/entities/by-type/person?limit=0", None, 400),
        ("GET", "/entities/7", None, 404),
        ("GET", f"/entities/{new_id()}/relationships", None, 404),
        ("POST", "/relationships", {"fromId": here, "label": "needs"}, 400),
        ("POST", "/relationships", {"fromId": here, "toId": here, "label": "needs"}, 400),
        ("POST", "/relationships", {"fromId": here, "toId": str(new_id()), "label": "needs"}, 404),
        ("DELETE", "/relationships", {"fromId": str(new_id()), "toId": here, "label": "needs"}, 404),
        ("POST", f"/projects/{new_id()}/summarize", None, 404),
        ("GET", "/projects/orders/overview", None, 404),
    ]
    for method, path, body, status in cases:
        await service(method, path, body, status=status)
    assert await service("GET", "/entities/by-type/person") == []


async def test_a_stranger_finds_none_of_it(client: httpx.AsyncClient, cast: Cast):
    alice, charlie = Service(client, cast.alice), Service(client, cast.charlie)
    made = await alice("POST", "/entities", {"name": "Redis", "type": "technology"}, status=201)

    assert await charlie("GET", "/entities/by-type/technology") == []
    await charlie("GET", f"/entities/{made['id']}", status=404)
    await charlie("DELETE", f"/entities/{made['id']}", status=404)
    await charlie("GET", f"/projects/{cast.alice.project.id}/overview", status=404)
