"""Budgets over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from tests.conftest import Cast, Person, bound_to
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows
from tests.timeouts import until

Json = dict[str, Any]


async def put(client: AsyncClient, person: Person, **body: object) -> Json:
    response = await client.put("/v1/budgets", json=body, headers=person.headers)
    assert response.status_code in {200, 201}, response.text
    return response.json()["budget"]


async def listed(client: AsyncClient, person: Person, query: str = "") -> list[Json]:
    response = await client.get(f"/v1/budgets{query}", headers=person.headers)
    assert response.status_code == 200, response.text
    return response.json()["budgets"]


async def test_a_budget_is_set_shown_changed_and_removed(client: AsyncClient, cast: Cast, make: Make, db: Db):
    await make.run(project=cast.alice.project, input_tokens=600, output_tokens=200, cost_usd="0.004")

    made = await client.put("/v1/budgets", json={"period": "month", "maxTokens": 1_000, "maxUsd": "5"}, headers=cast.alice.headers)
    changed = await client.put("/v1/budgets", json={"period": "month", "maxUsd": "0.0040"}, headers=cast.alice.headers)
    removed = await client.delete("/v1/budgets?period=month", headers=cast.alice.headers)

    assert (made.status_code, changed.status_code, removed.status_code) == (201, 200, 200)
    first, second = made.json()["budget"], changed.json()["budget"]
    resets = first.pop("resetsAtEpoch")
    assert first == {
        "projectId": None,
        "project": None,
        "period": "month",
        "maxTokens": 1_000,
        "maxUsd": "5.00",
        "spentTokens": 800,
        "spentUsd": "0.004",
        "share": 0.8,
        "state": "warned",
    }
    until = await rows(
        db,
        "SELECT (extract(epoch FROM date_trunc('month', now() AT TIME ZONE 'UTC' + interval '1 month')) * 1000)::bigint AS then"
        " , 1 AS one",
    )
    assert resets == until[0]["then"]
    assert (second["maxTokens"], second["maxUsd"], second["share"], second["state"]) == (None, "0.004", 1.0, "exhausted")
    assert removed.json() == {"deleted": True}
    assert await listed(client, cast.alice) == []
    audit_rows = await rows(db, "SELECT action, resource_type, details FROM audit_log WHERE action LIKE 'budget.%%' ORDER BY id")
    assert [row["action"] for row in audit_rows] == ["budget.set", "budget.set", "budget.removed"]
    assert audit_rows[0]["details"] == {"period": "month", "max_tokens": 1_000, "max_usd": "5"}


async def test_a_project_s_budget_counts_its_own_calls(client: AsyncClient, cast: Cast, make: Make):
    billing = await bound_to(make._db, cast.alice, "billing")  # pyright: ignore[reportPrivateUsage]
    await make.run(project=billing.project, input_tokens=50)
    await make.run(project=cast.alice.project, input_tokens=7)

    await put(client, cast.alice, period="day", maxTokens=100)
    await put(client, cast.alice, period="day", maxTokens=100, projectId="billing")
    await put(client, cast.alice, period="day", maxTokens=100, projectId=str(cast.alice.project.id))

    shown = await listed(client, cast.alice)
    assert [(budget["project"], budget["spentTokens"]) for budget in shown] == [
        (None, 57),
        ("billing", 50),
        (cast.alice.project.canonical_id, 7),
    ]
    assert [budget["project"] for budget in await listed(client, cast.alice, "?project=billing")] == [None, "billing"]


@try_rows(
    "body",
    [
        {"period": "month"},
        {"period": "week", "maxTokens": 1},
        {"period": "month", "maxTokens": 0},
        {"period": "month", "maxUsd": "0"},
        {"period": "month", "maxUsd": "0.00"},
        {"period": "month", "maxUsd": "-1"},
        {"period": "month", "maxUsd": "1e3"},
        {"period": "month", "maxUsd": 12.5},
        {"period": "month", "maxTokens": 1, "max_usd": "1"},
    ],
    ids=str,
)
async def test_what_is_no_budget_is_refused(client: AsyncClient, cast: Cast, body: Json):
    response = await client.put("/v1/budgets", json=body, headers=cast.alice.headers)

    assert response.status_code == 400, response.text
    assert await listed(client, cast.alice) == []


async def test_what_is_not_there_cannot_be_removed(client: AsyncClient, cast: Cast):
    await put(client, cast.alice, period="day", maxTokens=100)

    for query in ("period=month", f"period=day&project={cast.alice.project.id}", "period=day&project=nowhere"):
        assert (await client.delete(f"/v1/budgets?{query}", headers=cast.alice.headers)).status_code == 404, query
    assert len(await listed(client, cast.alice)) == 1


async def test_a_key_of_one_project_sees_its_budget_and_of_the_team_s_only_the_cap_and_the_state(
    client: AsyncClient, cast: Cast, make: Make, db: Db
):
    bound = await bound_to(db, cast.alice, "billing")
    await put(client, cast.alice, period="month", maxUsd="10")
    await put(client, cast.alice, period="month", maxUsd="2", projectId="billing")
    await put(client, cast.alice, period="month", maxUsd="3", projectId=str(cast.alice.project.id))
    await make.run(project=bound.project, cost_usd="1")
    await make.run(project=cast.alice.project, cost_usd="8")

    shown = await listed(client, bound)
    usage = (await client.get("/v1/usage", headers=bound.headers)).json()

    shown_fields = [
        (budget["project"], budget["maxUsd"], budget["spentUsd"], budget["spentTokens"], budget["share"], budget["state"])
        for budget in shown
    ]
    assert shown_fields == [(None, "10.00", None, None, None, "warned"), ("billing", "2.00", "1.00", 0, 0.5, "open")]
    assert [(budget["project"], budget["spentUsd"]) for budget in usage["budgets"]] == [(None, None)]


async def test_a_key_of_one_project_sets_no_budget(client: AsyncClient, cast: Cast, db: Db):
    bound = await bound_to(db, cast.alice, "billing")
    await put(client, cast.alice, period="month", maxUsd="2", projectId="billing")

    for project in ("billing", cast.alice.project.canonical_id, None):
        body = {"period": "month", "maxUsd": "100", "projectId": project}
        assert (await client.put("/v1/budgets", json=body, headers=bound.headers)).status_code == 403
    assert (await client.delete("/v1/budgets?period=month&project=billing", headers=bound.headers)).status_code == 403
    assert [budget["maxUsd"] for budget in await listed(client, cast.alice)] == ["2.00"]


async def test_a_budget_of_a_project_that_goes_at_the_same_time_neither_waits_for_it_nor_breaks(
    client: AsyncClient, cast: Cast, db: Db, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cmserver.base.db._DEADLOCK_PAUSES_SECONDS", ())  # the first one fails the request
    project = str(cast.alice.project.id)
    await put(client, cast.alice, period="day", projectId=project, maxTokens=10)
    async with db.system() as conn:
        # As erasing does it: the lanes, then the project, and with that its budgets.
        await conn.execute(
            "INSERT INTO generation_lanes (lane, team_id, project_id, held_for) VALUES (%s, %s, %s, 'budget')",
            (project, cast.alice.team_id, project),
        )

    async def waiting() -> bool:
        return len(await rows(db, "SELECT DISTINCT pid FROM pg_locks WHERE NOT granted")) == 2

    async with db.system() as conn:
        await conn.execute("SELECT FROM generation_lanes WHERE lane = %s FOR UPDATE", (project,))
        await conn.execute("SELECT FROM projects WHERE id = %s FOR UPDATE", (project,))
        changing = asyncio.create_task(
            client.put("/v1/budgets", json={"period": "day", "projectId": project, "maxTokens": 20}, headers=cast.alice.headers)
        )
        making = asyncio.create_task(
            client.put("/v1/budgets", json={"period": "month", "projectId": project, "maxTokens": 20}, headers=cast.alice.headers)
        )
        await until("both to wait", waiting)
        await conn.execute("DELETE FROM generation_lanes WHERE lane = %s", (project,))
        await conn.execute("DELETE FROM budgets WHERE project_id = %s", (project,))
        await conn.execute("DELETE FROM projects WHERE id = %s", (project,))

    assert (await changing).status_code == 200
    assert (await making).status_code == 404
    assert (await making).json()["error"] == "NotFound"
