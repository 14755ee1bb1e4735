"""What an operator of Contextify had set, and a team's policy says here."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.doors.contextify.situations import Contextify
from tests.doors.contextify.test_flaws import remaining
from tests.table import try_rows

LONG = "The worker retries an upload to the bucket of invoices three times, with a pause that grows, and then gives up"


@pytest.fixture
def visitor(guest: httpx.AsyncClient) -> Contextify:
    return Contextify(guest)


async def say(client: httpx.AsyncClient, cast: Cast, **policy: object) -> None:
    answer = await client.patch(f"/v1/teams/{cast.alice.team_id}", json={"retention": policy}, headers=cast.alice.headers)
    assert answer.status_code == 200, answer.text


async def test_lifetimes_are_those_of_the_team(visitor: Contextify, client: httpx.AsyncClient, cast: Cast, db: Db):
    await say(client, cast, defaultTtlSeconds=1000, extendFactor=0.1, promoteImportance=0.6)

    short = await visitor.memory("Short", "Lives as long as the team says.")
    permanent = await visitor.memory("Long", "Matters enough.", importance=0.6)
    raised = await visitor.memory("Raised", "Matters more and more.")
    await visitor.call("PUT", f"/memories/{raised['id']}", {"importance": 0.6})
    await visitor.call("GET", f"/memories/{short['id']}")

    assert await remaining(db, raised["id"]) == (None, None)
    assert await remaining(db, short["id"]) == (1100.0, 1000)
    assert await remaining(db, permanent["id"]) == (None, None)


@try_rows(
    ("one", "other", "is_merged"),
    [
        (LONG, f"{LONG} for good", True),
        (LONG, f"{LONG} for good. A person is told then", True),
        (LONG, LONG.replace("three", "five"), False),
        (LONG, LONG.replace("three", "never"), False),
        (LONG, LONG.replace("bucket", "buckets"), False),
        (LONG, LONG.replace("worker", "WORKER"), False),
        (LONG, LONG.replace("the bucket", "the Bucket"), False),
        (LONG, f"{LONG} -", False),
        (LONG, f"{LONG} \u2705", False),
        (LONG, f"{LONG} at 5", False),
        (LONG, LONG.replace("retries", "does not retry"), False),
        (LONG, LONG.replace("invoices", "receipts"), False),
        (f"{LONG} with `git branch -d`", f"{LONG} with `git branch -D`", False),
        (f"{LONG} of Alice", f"{LONG} of Bob", False),
    ],
)
async def test_what_is_nearer_than_the_team_says_is_merged_unless_it_differs(
    guest: httpx.AsyncClient, client: httpx.AsyncClient, cast: Cast, one: str, other: str, is_merged: bool
):
    visitor = Contextify(guest)
    visitor.project = f"github.com/acme/p{crc32((one + other).encode())}"
    await say(client, cast, autoMergeAbove=0.8)

    first = await visitor.memory("Retry of uploads", f"{one}.")
    second: Any = await visitor.store("Retry of uploads", f"{other}.")

    assert second["action"] == ("updated" if is_merged else "created_with_suggestions")
    if is_merged:
        assert second["memory"]["merged_from"] != []
        assert second["memory"]["id"] == first["id"]
        assert 0.8 <= second["similarity"] < 1


async def test_without_it_only_equal_texts_are_merged_and_pairs_are_suggested_from_the_team_s_likeness_on(
    visitor: Contextify, client: httpx.AsyncClient, cast: Cast
):
    await visitor.memory("Retry of uploads", f"{LONG}.")
    suggested = await visitor.store("Retry of uploads", f"{LONG} for good.")
    await say(client, cast, suggestAbove=1)
    left = await visitor.store("Retry of uploads", f"{LONG} for now, and for good.")

    assert (suggested["action"], left["action"]) == ("created_with_suggestions", "created")


async def test_merges_go_as_the_team_says_where_nobody_says_it(visitor: Contextify, client: httpx.AsyncClient, cast: Cast):
    await say(client, cast, mergeStrategy="latest_wins")
    target, second, third = await visitor.three_memories()

    merged = await visitor.call("POST", f"/memories/{target['id']}/merge", {"source_ids": [second["id"]]})
    chosen = await visitor.call("POST", f"/memories/{target['id']}/merge", {"source_ids": [third["id"]], "strategy": "smart_merge"})

    assert "upload" not in merged["content"]
    assert {"outbox", "spring"} <= {word.strip(".") for word in chosen["content"].split()}
