"""What was spent, told apart."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.base.money import usd
from tests.conftest import Cast, bound_to
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows

Json = dict[str, Any]


@pytest.fixture
async def spending(cast: Cast, make: Make, db: Db) -> Cast:
    """Of Alice: five calls of two projects and two models, one of them two days ago, and one without a price; one of Charlie."""
    billing = (await bound_to(db, cast.alice, "billing")).project
    orders = cast.alice.project
    await make.run(
        project=orders, input_tokens=1_000, output_tokens=100, cache_read_tokens=10, cache_write_tokens=1, cost_usd="0.5"
    )
    await make.run(project=orders, input_tokens=1_000, status="failed", cost_usd="0.25")
    await make.run(project=orders, provider="ollama", model="qwen3:8b", input_tokens=300)
    await make.run(project=billing, input_tokens=20, cost_usd="0.000067")
    await make.run(project=billing, input_tokens=40, cost_usd="2", days_ago=2)
    await make.run(project=cast.charlie.project, input_tokens=9_999, cost_usd="9")
    return cast


async def read_rows(client: AsyncClient, headers: dict[str, str], query: str) -> list[Json]:
    response = await client.get(f"/v1/usage?{query}", headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["rows"]


async def test_the_month_is_told_with_money_and_what_could_not_be_priced(client: AsyncClient, cast: Cast, make: Make):
    await make.run(
        project=cast.alice.project,
        input_tokens=1_000,
        output_tokens=100,
        cache_read_tokens=10,
        cache_write_tokens=1,
        cost_usd="0.5",
    )
    await make.run(project=cast.alice.project, status="failed", cost_usd="0.000067")
    await make.run(project=cast.alice.project, kind="guard", model="qwen3:8b", input_tokens=290, output_tokens=10)

    answer = (await client.get("/v1/usage", headers=cast.alice.headers)).json()

    requests, events = answer["usage"].pop("requests"), answer["usage"].pop("events")
    assert (requests, events) == (0, 0)
    assert answer["usage"] == {
        "providerCalls": 3,
        "inputTokens": 1_290,
        "outputTokens": 110,
        "cacheReadTokens": 10,
        "cacheWriteTokens": 1,
        "stewardTokens": 300,
        "costUsd": "0.500067",
        "failedCalls": 1,
        "unpricedCalls": 1,
    }
    assert answer["budgets"] == []
    assert "rows" not in answer


async def test_by_project(client: AsyncClient, spending: Cast):
    found = await read_rows(client, spending.alice.headers, "by=project&days=3")

    assert [(row["project"], row["calls"], row["costUsd"]) for row in found] == [
        ("billing", 2, "2.000067"),
        (spending.alice.project.canonical_id, 3, "0.75"),
    ]
    assert found[1] == {
        "projectId": str(spending.alice.project.id),
        "project": spending.alice.project.canonical_id,
        "calls": 3,
        "inputTokens": 2_300,
        "outputTokens": 100,
        "cacheReadTokens": 10,
        "cacheWriteTokens": 1,
        "costUsd": "0.75",
        "failedCalls": 1,
        "unpricedCalls": 1,
    }


async def test_by_model_and_by_day(client: AsyncClient, spending: Cast, db: Db):
    days = await rows(db, "SELECT (now() AT TIME ZONE 'UTC')::date AS today, (now() AT TIME ZONE 'UTC')::date - 2 AS before")

    by_model = await read_rows(client, spending.alice.headers, "by=model&days=3")
    by_day = await read_rows(client, spending.alice.headers, "by=day&days=3")
    both = await read_rows(client, spending.alice.headers, "by=day,model&days=3")

    assert [(row["provider"], row["model"], row["calls"]) for row in by_model] == [
        ("anthropic", "claude-haiku-5-5", 4),
        ("ollama", "qwen3:8b", 1),
    ]
    assert [(row["day"], row["calls"]) for row in by_day] == [(str(days[0]["today"]), 4), (str(days[0]["before"]), 1)]
    assert [(row["day"], row["model"]) for row in both] == [
        (str(days[0]["today"]), "claude-haiku-5-5"),
        (str(days[0]["today"]), "qwen3:8b"),
        (str(days[0]["before"]), "claude-haiku-5-5"),
    ]


async def test_days_alone_is_one_row_and_reaches_so_far(client: AsyncClient, spending: Cast):
    three, two = (
        await read_rows(client, spending.alice.headers, "days=3"),
        await read_rows(client, spending.alice.headers, "days=2"),
    )

    assert [(row["calls"], row["costUsd"]) for row in three] == [(5, "2.750067")]
    assert [(row["calls"], row["costUsd"]) for row in two] == [(4, "0.750067")]


async def test_a_key_of_one_project_is_told_of_that_alone_and_a_stranger_of_his_own(client: AsyncClient, spending: Cast, db: Db):
    bound = await bound_to(db, spending.alice, "billing")

    own = await read_rows(client, bound.headers, "by=project&days=3")
    charlies = await read_rows(client, spending.charlie.headers, "by=project,model,day&days=3")

    assert [(row["project"], row["calls"]) for row in own] == [("billing", 2)]
    assert [row["costUsd"] for row in charlies] == ["9.00"]


async def test_what_was_spent_on_a_deleted_project_is_still_told(client: AsyncClient, spending: Cast):
    deleted = await client.delete("/v1/projects/billing", headers=spending.alice.headers)
    found = await read_rows(client, spending.alice.headers, "by=project&days=3")

    assert deleted.status_code == 200
    assert (found[0]["project"], found[0]["costUsd"]) == (None, "2.000067")


async def test_budgets_that_are_nearly_spent_stand_beside_it(client: AsyncClient, spending: Cast):
    await client.put("/v1/budgets", json={"period": "day", "maxUsd": "0.80"}, headers=spending.alice.headers)
    await client.put("/v1/budgets", json={"period": "month", "maxUsd": "80"}, headers=spending.alice.headers)

    answer = (await client.get("/v1/usage", headers=spending.alice.headers)).json()

    assert [(budget["period"], budget["state"], budget["share"]) for budget in answer["budgets"]] == [("day", "warned", 0.9376)]


@try_rows("query", ["by=team", "by=", "by=project,", "days=0", "days=367", "by=day;model"])
async def test_what_cannot_be_told_apart_is_refused(client: AsyncClient, cast: Cast, query: str):
    assert (await client.get(f"/v1/usage?{query}", headers=cast.alice.headers)).status_code == 400


@try_rows(
    ("amount", "text"),
    [("0", "0.00"), ("5", "5.00"), ("12.5", "12.50"), ("0.000067", "0.000067"), ("1E+3", "1000.00"), ("0.1234567", "0.123457")],
)
def test_money_is_text_with_two_decimals_at_least(amount: str, text: str):
    assert usd(Decimal(amount)) == text


async def test_the_rows_as_a_table_for_spreadsheets(client: AsyncClient, spending: Cast):
    answer = await client.get("/v1/usage?by=project,day&days=3&format=csv", headers=spending.alice.headers)

    header, *rows = answer.text.splitlines()
    assert answer.headers["content-type"].startswith("text/csv")
    assert (
        header
        == "day,project,calls,failed_calls,input_tokens,output_tokens,cache_read_tokens,cache_write_tokens,cost_usd,unpriced_calls"
    )
    assert len(rows) == 3
    assert rows[0].split(",")[1:3] == [spending.alice.project.canonical_id, "3"]
