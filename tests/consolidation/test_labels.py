"""What is written down by hand is taken away by no later words, merged only with its like, and holds again when it is repeated."""

from __future__ import annotations

from typing import Any

import pytest
from httpx import AsyncClient

from tests.conftest import Cast, Person
from tests.evaluation.labels.load import HALVES, Half, read_labels

Json = dict[str, Any]


async def new_project(client: AsyncClient, person: Person, name: str) -> str:
    body = {"projectId": name, "sourceType": "api", "eventType": "note", "occurredAtEpoch": 1}
    assert (await client.post("/v1/events?generate=false", json=body, headers=person.headers)).is_success
    return name


async def store(client: AsyncClient, person: Person, **fields: object) -> Json:
    response = await client.post("/v1/observations", json=fields, headers=person.headers)
    assert response.is_success, response.text
    return response.json()


async def titles(client: AsyncClient, person: Person, project: str) -> list[str]:
    response = await client.get("/v1/observations", params={"project": project, "limit": 100}, headers=person.headers)
    return [row["title"] for row in response.json()["observations"]]


async def told(client: AsyncClient, person: Person, project: str) -> str:
    response = await client.get("/v1/context", params={"project": project}, headers=person.headers)
    return response.json()["context"]


@pytest.mark.parametrize("half", HALVES)
async def test_no_later_rule_takes_an_earlier_one_away(client: AsyncClient, cast: Cast, half: Half):
    pairs = read_labels("rule_pairs", half)
    wrong: list[Json] = []
    for place, pair in enumerate(pairs):
        project = await new_project(client, cast.alice, f"rules-{place}")
        for title in (pair["older"], pair["newer"]):
            await store(client, cast.alice, projectId=project, title=title, type="decision", importance=0.9, onDuplicate="merge")
        index = await told(client, cast.alice, project)
        listed = await titles(client, cast.alice, project)
        newer, older = (index.find(pair[name].replace("`", "")[:40]) for name in ("newer", "older"))
        if listed != [pair["newer"], pair["older"]] or not 0 <= newer < older:
            wrong.append(pair | {"listed": listed, "index": index})

    assert len(pairs) >= 59
    assert wrong == []


@pytest.mark.parametrize("half", HALVES)
async def test_of_two_rules_none_leaves_index_list_or_search(client: AsyncClient, cast: Cast, half: Half):
    wrong: list[Json] = []
    for place, pair in enumerate(read_labels("two_rules", half)):
        project = await new_project(client, cast.alice, f"two-rules-{place}")
        both = [pair["first"], pair["second"]]
        for title in both:
            await store(client, cast.alice, projectId=project, title=title, type="decision", importance=0.9, onDuplicate="merge")
        index = (await told(client, cast.alice, project)).replace("`", "")
        found = [await searched(client, cast.alice, project, text) for text in both]
        if (
            await titles(client, cast.alice, project) != both[::-1]
            or any(text.replace("`", "")[:40] not in index for text in both)
            or any(text not in hits for text, hits in zip(both, found, strict=True))
        ):
            wrong.append(pair | {"index": index, "found": found})

    assert wrong == []


async def searched(client: AsyncClient, person: Person, project: str, query: str) -> list[str]:
    body = {"query": query, "projectId": project}
    hits = (await client.post("/v1/search", json=body, headers=person.headers)).json()["observations"]
    return [hit["title"] for hit in hits]


@pytest.mark.parametrize("half", HALVES)
async def test_only_what_is_equal_but_for_space_markdown_and_ends_is_there_already(client: AsyncClient, cast: Cast, half: Half):
    wrong: list[Json] = []
    for place, pair in enumerate(read_labels("exact_pairs", half)):
        for choice in ("suggest", "merge"):
            project = await new_project(client, cast.alice, f"pairs-{place}-{choice}")
            first, second = [
                await store(client, cast.alice, projectId=project, title=pair[name], onDuplicate=choice)
                for name in ("first", "second")
            ]
            expected = ("repeated", 1) if pair["equal"] else ("created", 2)
            if (second["action"], len(await titles(client, cast.alice, project))) != expected:
                wrong.append(pair | {"choice": choice, "action": second["action"], "first": first["observation"]["title"]})

    assert wrong == []


TYPES = {"failure": "bugfix"}


@pytest.mark.parametrize("half", HALVES)
async def test_what_is_written_down_again_holds_again(client: AsyncClient, cast: Cast, half: Half):
    wrong: list[Json] = []
    for place, case in enumerate(read_labels("repeats", half)):
        project = await new_project(client, cast.alice, f"repeats-{place}")
        first, again = (note | {"type": TYPES.get(note["type"], note["type"])} for note in (case["first"], case["again"]))
        number = (await store(client, cast.alice, projectId=project, **first))["observation"]["number"]
        if case.get("then"):
            path = f"/v1/observations/{number}"
            assert (await client.patch(path, json={"state": case["then"]}, headers=cast.alice.headers)).is_success
        row = (await store(client, cast.alice, projectId=project, onDuplicate="suggest", **again))["observation"]
        expect = case["expect"]
        holds = [
            row["number"] == number,
            row["state"] not in {"dropped", "done"},
            (row["expiresAtEpoch"] is not None) == expect["expires"],
            row["importance"] >= expect.get("importanceAtLeast", 0),
            (row["ttlSeconds"] or 0) >= expect.get("lifetimeSecondsAtLeast", 0),
            row["scope"] == again.get("scope", first.get("scope", "project")),
            row["title"].replace("*", "")[:20] in (await told(client, cast.alice, project)).replace("*", ""),
        ]
        if not all(holds):
            wrong.append(case | {"row": row, "holds": holds})

    assert wrong == []
