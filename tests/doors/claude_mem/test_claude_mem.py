"""The memories of claude-mem's server, with the bodies that its clients send."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from tests.conftest import Cast, bound_to, mint
from tests.make import Make

Json = dict[str, Any]


async def keep(client: AsyncClient, headers: dict[str, str], **fields: object) -> Json:
    response = await client.post("/v1/memories", json=fields, headers=headers)
    assert response.status_code == 201, response.text
    return response.json()["memory"]


async def test_a_memory_comes_back_with_the_fields_that_its_client_knows(client: AsyncClient, cast: Cast, db: Db):
    _, key = await mint(db, cast.alice.team_id, "agent", scopes=["memories:read", "memories:write"])
    headers = {"Authorization": f"Bearer {key}"}
    started = await client.post(
        "/v1/sessions/start", json={"projectId": str(cast.alice.project.id), "externalSessionId": "s"}, headers=headers
    )
    session = started.json()["session"]["id"]

    memory = await keep(
        client,
        headers,
        projectId=str(cast.alice.project.id),
        content="The zebra lives in staging.",
        serverSessionId=session,
        metadata={"tag": "zoo"},
        memoryTier="core",  # unknown keys are ignored, as they are there
    )

    assert {name: memory[name] for name in ("projectId", "teamId", "serverSessionId", "kind", "content", "metadata")} == {
        "projectId": str(cast.alice.project.id),
        "teamId": str(cast.alice.team_id),
        "serverSessionId": session,
        "kind": "manual",
        "content": "The zebra lives in staging.",
        "metadata": {"tag": "zoo"},
    }
    assert UUID(memory["id"])
    assert memory["createdAtEpoch"] == memory["updatedAtEpoch"] > 1_700_000_000_000
    found = await client.post("/v1/search", json={"projectId": cast.alice.project.canonical_id, "query": "zebra"}, headers=headers)
    assert [one["id"] for one in found.json()["observations"]] == [memory["id"]]


async def test_a_narrative_does_as_well_as_a_content(client: AsyncClient, cast: Cast):
    """What the tool observation_add sends, which the original always refuses."""
    memory = await keep(
        client,
        cast.alice.headers,
        projectId=cast.alice.project.canonical_id,
        kind="manual",
        type="decision",
        title="Zoo",
        narrative="The zebra lives in staging.",
        facts=None,
    )

    assert (memory["type"], memory["kind"], memory["title"]) == ("decision", "manual", "Zoo")
    assert memory["content"] == "Zoo\n\nThe zebra lives in staging."


@pytest.mark.parametrize(
    ("words", "type_"),
    [
        ({}, "discovery"),
        ({"kind": "bugfix"}, "bugfix"),
        ({"kind": "note", "type": "feature"}, "feature"),
        ({"type": "poem"}, "discovery"),
    ],
)
async def test_a_word_that_is_no_type_of_ours_says_nothing(client: AsyncClient, cast: Cast, words: Json, type_: str):
    memory = await keep(client, cast.alice.headers, projectId=cast.alice.project.canonical_id, content="x", **words)

    assert (memory["type"], memory["kind"]) == (type_, "manual")


async def test_a_memory_without_text_or_project_is_refused(client: AsyncClient, cast: Cast):
    nothing = await client.post(
        "/v1/memories", json={"projectId": cast.alice.project.canonical_id, "metadata": {}}, headers=cast.alice.headers
    )
    nowhere = await client.post("/v1/memories", json={"content": "x"}, headers=cast.alice.headers)

    assert (nothing.status_code, nothing.json()["error"]) == (400, "ValidationError")
    assert (nowhere.status_code, nowhere.json()["issues"][0]["path"]) == (400, "$.projectId")


async def test_memories_are_listed_page_by_page_and_read_one_by_one(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, type="bugfix")
    for n in range(2):
        await keep(client, cast.alice.headers, projectId=cast.alice.project.canonical_id, content=f"note {n}")

    async def listed(**params: str) -> tuple[list[int], str | None]:
        response = await client.get("/v1/memories", params={"unknown": "x", **params}, headers=cast.bob.headers)
        assert response.status_code == 200, response.text
        return [one["number"] for one in response.json()["memories"]], response.json()["nextCursor"]

    first, cursor = await listed(projectId=cast.alice.project.canonical_id, limit="2")

    assert first == [3, 2]
    assert cursor is not None
    assert await listed(project=cast.alice.project.canonical_id, limit="2", cursor=cursor) == ([1], None)
    assert await listed(kind="manual") == ([3, 2], None)
    one = await client.get("/v1/memories/1", headers=cast.bob.headers)
    assert (one.json()["memory"]["kind"], one.json()["memory"]["sources"]) == ("bugfix", [])


async def test_a_deleted_memory_is_gone(client: AsyncClient, cast: Cast):
    memory = await keep(client, cast.alice.headers, projectId=cast.alice.project.canonical_id, content="x")

    response = await client.delete(f"/v1/memories/{memory['id']}", headers=cast.alice.headers)

    assert (response.status_code, response.json()) == (200, {"deleted": True, "id": memory["id"]})
    assert (await client.delete(f"/v1/memories/{memory['id']}", headers=cast.alice.headers)).status_code == 404
    assert (await client.get(f"/v1/observations/{memory['id']}", headers=cast.alice.headers)).status_code == 404


async def test_a_stranger_and_a_key_of_another_project_have_no_part_in_it(client: AsyncClient, cast: Cast, db: Db):
    bound = await bound_to(db, cast.alice, "billing")
    project = str(cast.alice.project.id)
    memory = await keep(client, cast.alice.headers, projectId=project, content="x")

    for headers in (cast.charlie.headers, bound.headers):
        for method in ("GET", "DELETE"):
            refusals: list[Json] = []
            for named in (memory["id"], memory["number"], new_id()):
                response = await client.request(method, f"/v1/memories/{named}", headers=headers)
                assert response.status_code == 404
                refusals.append({**response.json(), "requestId": ""})
            assert refusals[0] == refusals[1] == refusals[2]
        posted = await client.post("/v1/memories", json={"projectId": project, "content": "x"}, headers=headers)
        listed = await client.get("/v1/memories", params={"projectId": project}, headers=headers)
        assert (posted.status_code, listed.status_code) == (404, 404)
        assert (await client.get("/v1/memories", headers=headers)).json() == {"memories": [], "nextCursor": None}


async def test_memories_need_the_scopes(client: AsyncClient, cast: Cast, db: Db):
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["memories:read"])
    _, writer = await mint(db, cast.alice.team_id, "writer", scopes=["memories:write"])
    body = {"projectId": cast.alice.project.canonical_id, "content": "x"}

    assert (await client.post("/v1/memories", json=body)).status_code == 401
    assert (await client.post("/v1/memories", json=body, headers={"X-Api-Key": reader})).status_code == 403
    assert (await client.delete("/v1/memories/1", headers={"X-Api-Key": reader})).status_code == 403
    assert (await client.get("/v1/memories", headers={"X-Api-Key": writer})).status_code == 403
