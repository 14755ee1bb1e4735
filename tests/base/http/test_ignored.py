"""A field that was misspelt is never silent: refused, or named in the answer."""

from __future__ import annotations

from typing import Any

import httpx

from tests.conftest import Cast
from tests.make import Make

EVENT = {"projectId": "github.com/acme/orders", "eventType": "note", "payload": {"sesion": 1}}


async def test_what_a_body_says_in_vain_is_named(client: httpx.AsyncClient, cast: Cast):
    response = await client.post("/v1/events", json={**EVENT, "sesionId": "s1", "projct": "x"}, headers=cast.alice.headers)

    assert response.status_code == 201
    assert response.json()["ignored"] == ["projct", "sesionId"]
    assert response.json()["event"]["payload"] == {"sesion": 1}, "a payload is free"
    assert int(response.headers["content-length"]) == len(response.content)


async def test_what_a_query_string_says_in_vain_is_named_with_the_body_s(client: httpx.AsyncClient, cast: Cast):
    listed = (await client.get("/v1/jobs?statuss=failed", headers=cast.alice.headers)).json()
    stored = (await client.post("/v1/events?wiat=true", json={**EVENT, "projct": "x"}, headers=cast.alice.headers)).json()

    assert listed["ignored"] == ["statuss"]
    assert stored["ignored"] == ["wiat", "projct"]


async def test_in_a_batch_it_says_where(client: httpx.AsyncClient, cast: Cast):
    response = await client.post("/v1/events/batch", json=[EVENT, {**EVENT, "projct": "x"}], headers=cast.alice.headers)

    assert response.json()["ignored"] == ["[1].projct"]


async def test_without_anything_in_vain_nothing_is_said(client: httpx.AsyncClient, cast: Cast):
    stored = (await client.post("/v1/events", json=EVENT, headers=cast.alice.headers)).json()
    listed = (await client.get("/v1/jobs?status=failed", headers=cast.alice.headers)).json()

    assert "ignored" not in stored
    assert "ignored" not in listed


async def test_however_much_is_in_vain_the_answer_stays_short(client: httpx.AsyncClient, cast: Cast):
    body = {**EVENT, **{f"unknown{place:03}": 1 for place in range(50)}, "a" * 500: 1}

    ignored = (await client.post("/v1/events", json=body, headers=cast.alice.headers)).json()["ignored"]

    assert len(ignored) == 20
    assert max(map(len, ignored)) == 100


async def test_clients_of_claude_mem_get_their_own_shapes(client: httpx.AsyncClient, cast: Cast):
    response = await client.get("/api/observations?projct=x", headers=cast.alice.headers)

    assert response.status_code == 200
    assert response.json().keys() == {"items", "hasMore", "offset", "limit"}


async def test_a_search_understands_type_as_types(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="Retry the upload", type="decision")
    await make.observation(project=cast.alice.project, title="Retry the download", type="bugfix")

    async def found(**fields: object) -> set[str]:
        body = {"query": "retry", "format": "index", "minScore": 0, **fields}
        answer: Any = (await client.post("/v1/search", json=body, headers=cast.alice.headers)).json()
        assert "ignored" not in answer
        return {hit["type"] for hit in answer["observations"]}

    assert await found() == {"decision", "bugfix"}
    assert await found(type="decision") == await found(types=["decision"]) == await found(type=["decision"]) == {"decision"}
    assert await found(type="decision", types=["bugfix"]) == {"decision", "bugfix"}
