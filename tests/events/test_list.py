"""GET /v1/events: a list, with filters and pages."""

from __future__ import annotations

import time
from typing import Any

import httpx

from tests.conftest import Cast, Person

ORDERS = "github.com/acme/orders"


async def send(client: httpx.AsyncClient, person: Person, name: str, **fields: object) -> str:
    event = {"projectId": ORDERS, "eventType": "tool_use", "contentSessionId": "s1", "payload": {"name": name}, **fields}
    response = await client.post("/v1/events", json=event, headers=person.headers)
    assert response.status_code == 201, response.text
    return response.json()["event"]["id"]


async def page(client: httpx.AsyncClient, person: Person, **params: Any) -> dict[str, Any]:
    response = await client.get("/v1/events", params=params, headers=person.headers)
    assert response.status_code == 200, response.text
    return response.json()


async def ids(client: httpx.AsyncClient, person: Person, **params: Any) -> list[str]:
    return [event["id"] for event in (await page(client, person, **params))["events"]]


async def test_events_are_listed_newest_first_and_their_payloads_only_when_asked_for(client: httpx.AsyncClient, cast: Cast):
    first, second = await send(client, cast.alice, "a"), await send(client, cast.alice, "b")

    plain = await page(client, cast.alice)
    whole = await page(client, cast.alice, include="payload")
    alone = (await client.get(f"/v1/events/{second}", headers=cast.alice.headers)).json()["event"]

    assert [event["id"] for event in plain["events"]] == [second, first]
    assert plain["nextCursor"] is None
    assert whole["events"][0] == alone
    assert plain["events"][0] == {name: value for name, value in alone.items() if name != "payload"}


async def test_filters_by_project_session_and_type(client: httpx.AsyncClient, cast: Cast):
    tool = await send(client, cast.alice, "a")
    prompt = await send(client, cast.alice, "b", eventType="user_prompt")
    other = await send(client, cast.alice, "c", contentSessionId="s2")
    elsewhere = await send(client, cast.alice, "d", projectId="github.com/acme/other", contentSessionId="s3")
    session = (await page(client, cast.alice, type="user_prompt"))["events"][0]["serverSessionId"]

    assert await ids(client, cast.alice, session="s1") == [prompt, tool]
    assert await ids(client, cast.alice, session=session) == [prompt, tool]
    assert await ids(client, cast.alice, session="s1", type="tool_use") == [tool]
    assert await ids(client, cast.alice, type="tool_use") == [elsewhere, other, tool]
    assert await ids(client, cast.alice, project=ORDERS) == [other, prompt, tool]
    assert await ids(client, cast.alice, type="unknown") == []


async def test_pages_join_without_a_gap_also_among_events_of_one_instant_and_of_several_projects(
    client: httpx.AsyncClient, cast: Cast
):
    now = int(time.time() * 1000)
    sent: list[tuple[int, str]] = []
    for place in range(9):
        occurred_at = now - place // 3 * 1000
        project = ORDERS if place % 2 else "github.com/acme/other"
        name = await send(
            client, cast.alice, str(place), occurredAtEpoch=occurred_at, projectId=project, contentSessionId=f"s{place}"
        )
        sent.append((occurred_at, name))
    seen: list[str] = []
    cursor: str | None = None

    while True:
        answer = await page(client, cast.alice, limit=2, **({"cursor": cursor} if cursor else {}))
        seen += [event["id"] for event in answer["events"]]
        cursor = answer["nextCursor"]
        if len(seen) == 4:  # what arrives late below the cursor takes its place, and moves nothing
            late = await send(client, cast.alice, "late", occurredAtEpoch=now - 3_600_000)
            sent.append((now - 3_600_000, late))
        if cursor is None:
            break

    assert seen == [name for _, name in sorted(sent, reverse=True)]
