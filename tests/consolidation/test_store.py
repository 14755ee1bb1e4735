"""What is there already is not stored again: exact repeats, and what says the same in nearly the same words."""

from __future__ import annotations

import asyncio
from typing import Any, LiteralString

import pytest
from httpx import AsyncClient, Response

from cmserver.base.db import Db
from tests.conftest import Cast, Person, bound_to
from tests.table import try_rows

Json = dict[str, Any]

LONG = (
    "The refund job retries three times with a doubling pause because the upstream bank recovers within two seconds of a timeout."
)


async def send(client: AsyncClient, person: Person, **fields: object) -> Response:
    body = {"projectId": person.project.canonical_id, "onDuplicate": "merge", **fields}
    return await client.post("/v1/observations", json=body, headers=person.headers)


async def store(client: AsyncClient, person: Person, **fields: object) -> Json:
    response = await send(client, person, **fields)
    assert response.status_code in {200, 201}, response.text
    return response.json()


async def ask(db: Db, statement: LiteralString) -> Any:
    async with db.system() as conn:
        return await (await conn.execute(statement)).fetchall()


@pytest.mark.parametrize("choice", ["suggest", "merge"])
async def test_an_exact_repeat_returns_the_one_that_is_there(client: AsyncClient, cast: Cast, db: Db, choice: str):
    first = await send(client, cast.alice, title="Retry", narrative="Three times.", facts=["It doubles"], onDuplicate=choice)
    again = await send(
        client, cast.alice, title="  **Retry** ", narrative="Three  times", facts=["- It doubles"], onDuplicate=choice
    )

    assert (first.status_code, again.status_code) == (201, 200)
    assert (first.json()["action"], again.json()["action"], again.json()["measuredBy"]) == ("created", "repeated", "text")
    assert again.json()["observation"]["id"] == first.json()["observation"]["id"]
    assert await ask(db, "SELECT count(*) FROM observations") == [(1,)]
    assert await ask(db, "SELECT count(*) FROM observation_versions") == [(0,)]


async def test_who_says_nothing_of_duplicates_stores_them(client: AsyncClient, cast: Cast, db: Db):
    for _ in range(2):
        await store(client, cast.alice, title="Retry", onDuplicate="keep")
        await store(client, cast.alice, title="Retry", onDuplicate=None)

    assert await ask(db, "SELECT count(*) FROM observations") == [(4,)]


async def test_64_writes_of_the_same_text_at_once_make_one_row(client: AsyncClient, cast: Cast, db: Db):
    answers = await asyncio.gather(*(send(client, cast.alice, title="Retry", narrative=LONG) for _ in range(64)))

    assert sorted(answer.status_code for answer in answers) == [200] * 63 + [201]
    assert {answer.json()["observation"]["number"] for answer in answers} == {1}
    assert await ask(db, "SELECT count(*) FROM observations") == [(1,)]


async def test_the_same_text_of_another_type_is_merged_and_can_be_undone(client: AsyncClient, cast: Cast, db: Db):
    await store(client, cast.alice, title="Refunds retry", narrative=LONG, concepts=["refund"])

    merged = await store(client, cast.alice, title="Refunds retry", narrative=f"{LONG} ", type="bugfix", importance=0.9)

    assert (merged["action"], merged["measuredBy"], merged["observation"]["number"]) == ("merged", "text", 1)
    assert merged["similarity"] == 1
    assert merged["observation"]["importance"] == pytest.approx(0.9)
    assert await ask(db, "SELECT performed_by, measured_by FROM observation_versions") == [("system", "text")]
    undone = await client.post("/v1/observations/1/undo", headers=cast.alice.headers)
    assert undone.json()["restored"] == [2]


async def test_what_was_dropped_and_is_merged_with_what_is_said_again_holds_again(client: AsyncClient, cast: Cast):
    first = await store(client, cast.alice, title="Deploys need two people", type="bugfix")
    path = f"/v1/observations/{first['observation']['number']}"
    await client.patch(path, json={"state": "dropped"}, headers=cast.alice.headers)

    again = await store(client, cast.alice, title="Deploys need two people", type="discovery")
    undone = await client.post(f"{path}/undo", headers=cast.alice.headers)

    assert (again["action"], again["observation"]["state"], again["observation"]["closedAtEpoch"]) == ("merged", None, None)
    assert undone.json()["observation"]["state"] == "dropped"


async def test_what_says_more_in_the_same_words_is_suggested(client: AsyncClient, cast: Cast):
    await store(client, cast.alice, title="Refunds retry", narrative=LONG)

    more = await store(client, cast.alice, title="Refunds retry", narrative=LONG, facts=["The pause doubles"])

    assert (more["action"], [pair["reason"] for pair in more["suggestions"]]) == ("created", ["same"])


@pytest.mark.parametrize(
    "narrative",
    [
        LONG.replace("three", "five"),
        LONG.replace("retries", "never retries"),
        LONG.replace("refund job", "invoice job"),
    ],
)
async def test_another_fact_in_nearly_the_same_words_is_never_merged_but_suggested(client: AsyncClient, cast: Cast, narrative: str):
    await store(client, cast.alice, title="Refunds retry", narrative=LONG)

    other = await store(client, cast.alice, title="Refunds retry", narrative=narrative)

    assert (other["action"], other["observation"]["number"]) == ("created", 2)
    assert [(pair["leftNumber"] + pair["rightNumber"], pair["reason"]) for pair in other["suggestions"]] == [(3, "contradicts")]
    listed = (await client.get("/v1/suggestions", headers=cast.alice.headers)).json()["suggestions"]
    assert [pair["id"] for pair in listed] == [pair["id"] for pair in other["suggestions"]]


async def test_another_fact_about_another_file_is_not_suggested(client: AsyncClient, cast: Cast):
    await store(client, cast.alice, title="Refunds retry", narrative=LONG, filesModified=["src/refunds.py"])

    other = await store(
        client, cast.alice, title="Refunds retry", narrative=LONG.replace("three", "five"), filesModified=["src/invoices.py"]
    )

    assert (other["action"], other["suggestions"]) == ("created", [])


@pytest.mark.parametrize("fields", [{"type": "decision"}, {"projectId": "elsewhere"}], ids=lambda fields: next(iter(fields)))
async def test_what_is_of_another_kind_or_project_is_no_duplicate(client: AsyncClient, cast: Cast, db: Db, fields: dict[str, str]):
    await bound_to(db, cast.alice, "elsewhere")
    await store(client, cast.alice, title="Refunds retry", narrative=LONG)

    other = await store(client, cast.alice, title="Refunds retry", narrative=LONG, **fields)

    assert (other["action"], other["suggestions"]) == ("created", [])


async def test_what_is_gone_is_no_duplicate(client: AsyncClient, cast: Cast, db: Db):
    await store(client, cast.alice, title="Refunds retry", narrative=LONG, ttlSeconds=60)
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET expires_at = now()")

    again = await store(client, cast.alice, title="Refunds retry", narrative=LONG)

    assert (again["action"], again["observation"]["number"]) == ("created", 2)


async def test_a_batch_folds_its_own_repeats_and_says_what_became_of_each(client: AsyncClient, cast: Cast, db: Db):
    await store(client, cast.alice, title="One")
    batch = [
        {"projectId": cast.alice.project.canonical_id, "title": title, "onDuplicate": choice}
        for title, choice in [("*One*", "suggest"), ("Two", "merge"), (" Two.", "merge"), ("Two", "keep")]
    ]

    answer = await client.post("/v1/observations/batch", json=batch, headers=cast.alice.headers)

    assert answer.status_code == 201
    assert [row["action"] for row in answer.json()["results"]] == ["repeated", "created", "repeated", "created"]
    assert [row["number"] for row in answer.json()["observations"]] == [1, 2, 2, 3]
    assert await ask(db, "SELECT count(*) FROM observations") == [(3,)]


@try_rows(
    ("first", "again", "ttl_seconds"),
    [
        ({"ttlSeconds": 60, "importance": 0.9}, {"ttlSeconds": 3600, "scope": "team"}, 3600),
        ({"ttlSeconds": 3600, "scope": "team"}, {"ttlSeconds": 60, "importance": 0.9}, 3600),
        ({"importance": 0.9}, {"ttlSeconds": 60, "scope": "team"}, None),
        ({"ttlSeconds": 60, "scope": "team"}, {"importance": 0.9}, None),
    ],
)
async def test_two_equal_notes_of_one_request_live_as_long_and_matter_and_reach_as_far_as_either_says(
    client: AsyncClient, cast: Cast, first: Json, again: Json, ttl_seconds: int | None
):
    common = {"projectId": cast.alice.project.canonical_id, "title": f"Refunds wait {first} {again}", "onDuplicate": "merge"}
    body = [{**common, **fields} for fields in (first, again)]

    answer = await client.post("/v1/observations/batch", json=body, headers=cast.alice.headers)

    assert [result["action"] for result in answer.json()["results"]] == ["created", "repeated"]
    (stored, repeated) = answer.json()["observations"]
    assert repeated["id"] == stored["id"]
    assert (stored["ttlSeconds"], stored["importance"], stored["scope"]) == (ttl_seconds, 0.9, "team")


async def test_a_repeat_for_the_whole_team_is_shared_unless_the_key_is_bound_to_the_project(
    client: AsyncClient, cast: Cast, db: Db
):
    await store(client, cast.alice, title="Retry", narrative=LONG)
    bound = await bound_to(db, cast.alice, cast.alice.project.canonical_id)

    shared = await store(client, cast.alice, title="Retry", narrative=LONG, scope="team")
    own = await store(client, bound, title="Retry", narrative=LONG)

    assert (shared["action"], shared["observation"]["number"], shared["observation"]["scope"]) == ("repeated", 1, "team")
    assert (own["action"], own["observation"]["number"], own["observation"]["scope"]) == ("created", 2, "project")


async def test_a_bad_choice_is_refused_and_stores_nothing(client: AsyncClient, cast: Cast, db: Db):
    refused = await send(client, cast.alice, title="x", onDuplicate="replace")

    assert (refused.status_code, refused.json()["issues"][0]["path"]) == (400, "$.onDuplicate")
    assert await ask(db, "SELECT count(*) FROM observations") == [(0,)]


async def test_merging_past_the_limits_of_a_field_is_refused_and_changes_nothing(client: AsyncClient, cast: Cast, db: Db):
    for part in ("a", "b"):
        await store(
            client, cast.alice, title=part, facts=[f"Fact {part}{place} of the list" for place in range(40)], onDuplicate="keep"
        )

    refused = await client.post("/v1/observations/1/merge", json={"sources": [2]}, headers=cast.alice.headers)

    assert refused.status_code == 400
    assert await ask(db, "SELECT count(*) FROM observations WHERE superseded_at IS NULL") == [(2,)]


async def test_names_with_backslashes_and_quotes_are_compared_like_others(client: AsyncClient, cast: Cast):
    text = r"error C2065 in src\main.py:12 of C:\build\o'neill.c(3)"
    await store(client, cast.alice, title="Compiler", narrative=text)

    again = await store(client, cast.alice, title="Compiler!", narrative=text)

    assert again["action"] == "repeated"
