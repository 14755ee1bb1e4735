"""What is shared with the whole team is recalled in each of its projects, and written only by keys of the whole team."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from tests.conftest import Cast, Person, bound_to
from tests.make import Make

NOON = datetime(2026, 3, 5, 12, 0, tzinfo=UTC)


@pytest.fixture
async def billing(cast: Cast, db: Db) -> Person:
    """Whose key is bound to another project of Alice's team."""
    return await bound_to(db, cast.alice, "billing")


async def share(client: AsyncClient, person: Person, **fields: object) -> dict[str, Any]:
    body = {"projectId": person.project.canonical_id, "scope": "team", **fields}
    response = await client.post("/v1/observations", json=body, headers=person.headers)
    assert response.status_code == 201, response.text
    return response.json()["observation"]


async def search_numbers(client: AsyncClient, headers: dict[str, str], project: str, query: str) -> list[int]:
    response = await client.post("/v1/search", json={"projectId": project, "query": query}, headers=headers)
    assert response.status_code == 200, response.text
    return [observation["number"] for observation in response.json()["observations"]]


async def test_what_is_shared_is_recalled_in_every_project_of_the_team_and_in_no_other_team(
    client: AsyncClient, cast: Cast, make: Make, billing: Person
):
    own = await make.observation(project=cast.alice.project, title="A zebra of orders only")
    shared = await share(client, cast.alice, title="Every zebra is striped")

    assert own.number == 1
    assert await search_numbers(client, billing.headers, str(billing.project.id), "zebra") == [2]
    assert sorted(await search_numbers(client, cast.bob.headers, cast.bob.project.canonical_id, "zebra")) == [1, 2]
    assert await search_numbers(client, cast.charlie.headers, cast.charlie.project.canonical_id, "zebra") == []
    context = await client.post(
        "/v1/context", json={"projectId": str(billing.project.id), "query": "zebra"}, headers=billing.headers
    )
    index = await client.get("/v1/context", headers=billing.headers)
    strange = await client.get("/v1/context", params={"project": cast.charlie.project.canonical_id}, headers=cast.charlie.headers)
    assert str(shared["content"]) in context.json()["context"]
    assert [line["number"] for line in index.json()["observations"]] == [2]
    assert "Every zebra is striped (of the whole team)" in index.json()["context"]
    assert strange.json()["observations"] == []


async def test_the_index_has_the_newest_of_both_and_no_more_than_were_asked_for(
    client: AsyncClient, cast: Cast, make: Make, billing: Person, db: Db
):
    for minutes in range(3):
        await make.observation(project=cast.alice.project, title=f"Own {minutes}", created_at=NOON + timedelta(minutes=minutes * 2))
    numbers = [
        (await share(client, cast.alice, title=f"Shared {place}", projectId=str(billing.project.id)))["number"]
        for place in range(2)
    ]
    async with db.system() as conn:
        for place, number in enumerate(numbers):
            at = NOON + timedelta(minutes=place * 2 + 1)
            await conn.execute("UPDATE observations SET created_at = %s WHERE number = %s", [at, number])

    params = {"project": cast.alice.project.canonical_id, "limit": "4"}
    index = await client.get("/v1/context", params=params, headers=cast.alice.headers)

    assert [line["number"] for line in index.json()["observations"]] == [3, 5, 2, 4]


async def test_ranking_counts_what_is_shared_as_a_document_of_each_project(
    client: AsyncClient, cast: Cast, make: Make, billing: Person
):
    for _ in range(3):
        await make.observation(project=cast.alice.project, title="A common word")
    await share(client, cast.alice, title="A common word and a rare one", projectId=str(billing.project.id))

    response = await client.post(
        "/v1/search", json={"projectId": cast.alice.project.canonical_id, "query": "common rare"}, headers=cast.alice.headers
    )

    hits = response.json()["observations"]
    assert hits[0]["number"] == 4
    assert hits[0]["score"] > hits[1]["score"] > 0


async def test_a_key_of_another_project_may_read_what_is_shared_but_not_where_it_came_from(
    client: AsyncClient, cast: Cast, make: Make, billing: Person
):
    body = {"projectId": cast.alice.project.canonical_id, "eventType": "note"}
    event = (await client.post("/v1/events?generate=false", json=body, headers=cast.alice.headers)).json()["event"]["id"]
    made = await make.observation(project=cast.alice.project, from_event=UUID(event))
    assert (await client.get("/v1/observations/1", headers=billing.headers)).status_code == 404

    shared = await client.patch("/v1/observations/1", json={"scope": "team"}, headers=cast.alice.headers)

    assert shared.json()["observation"]["scope"] == "team"
    for named in ("1", made.id):
        response = await client.get(f"/v1/observations/{named}", headers=billing.headers)
        assert response.status_code == 200
        assert response.json()["observation"]["sources"] == []
    own = await client.get("/v1/observations/1", headers=cast.bob.headers)
    assert [source["sourceId"] for source in own.json()["observation"]["sources"]] == [event]
    assert (await client.get("/v1/observations/1", headers=cast.charlie.headers)).status_code == 404


async def test_what_is_no_longer_shared_is_seen_in_its_project_only(client: AsyncClient, cast: Cast, billing: Person):
    await share(client, cast.alice, title="A zebra")

    await client.patch("/v1/observations/1", json={"scope": "project"}, headers=cast.alice.headers)

    assert await search_numbers(client, billing.headers, str(billing.project.id), "zebra") == []
    assert (await client.get("/v1/observations/1", headers=billing.headers)).status_code == 404


async def test_a_key_that_is_bound_to_a_project_shares_nothing(client: AsyncClient, cast: Cast, billing: Person, db: Db):
    async def refused(method: str, path: str, body: object) -> None:
        response = await client.request(method, path, json=body, headers=billing.headers)
        assert response.status_code == 403
        assert "bound to one project" in response.json()["message"]

    own = await client.post("/v1/observations", json={"title": "Mine"}, headers=billing.headers)

    await refused("POST", "/v1/observations", {"title": "For all", "scope": "team"})
    await refused("POST", "/v1/observations/batch", [{"title": "Mine"}, {"title": "For all", "scope": "team"}])
    await refused("PATCH", f"/v1/observations/{own.json()['observation']['id']}", {"scope": "team"})
    async with db.system() as conn:
        cursor = await conn.execute("SELECT number, scope FROM observations")
        assert await cursor.fetchall() == [(1, "project")]


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_what_another_project_shares_may_be_read_and_not_changed(
    client: AsyncClient, cast: Cast, billing: Person, method: str
):
    await share(client, cast.alice, title="A zebra")

    response = await client.request(method, "/v1/observations/1", json={"title": "Mine"}, headers=billing.headers)

    assert response.status_code == 403
    assert "only read it" in response.json()["message"]
    read = await client.get("/v1/observations/1", headers=cast.alice.headers)
    assert read.json()["observation"]["title"] == "A zebra"


async def test_the_summary_of_a_session_stays_in_its_project(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, kind="summary", summary={"request": "Retry", "completed": "It retries"})

    response = await client.patch("/v1/observations/1", json={"scope": "team"}, headers=cast.alice.headers)

    assert (response.status_code, response.json()["issues"][0]["path"]) == (400, "$.scope")


async def test_a_list_shows_what_is_in_the_project_and_can_be_asked_for_what_is_shared(
    client: AsyncClient, cast: Cast, make: Make, billing: Person
):
    await make.observation(project=cast.alice.project)
    await share(client, cast.alice, title="PromptWordMatch")

    async def listed(headers: dict[str, str], **params: str) -> list[int]:
        response = await client.get("/v1/observations", params=params, headers=headers)
        return [observation["number"] for observation in response.json()["observations"]]

    assert await listed(billing.headers) == []
    assert await listed(cast.bob.headers, project=cast.bob.project.canonical_id) == [2, 1]
    assert await listed(cast.bob.headers, scope="team") == [2]
    assert await listed(cast.bob.headers, scope="project") == [1]


async def test_serving_what_is_shared_is_noted_where_it_was_served(client: AsyncClient, cast: Cast, billing: Person, db: Db):
    await share(client, cast.alice, title="A zebra")

    await search_numbers(client, billing.headers, str(billing.project.id), "zebra")

    async with db.system() as conn:
        cursor = await conn.execute("SELECT project_id, details FROM audit_log WHERE action = 'observations.served'")
        assert await cursor.fetchall() == [(billing.project.id, {"via": "search.full", "numbers": [1]})]
