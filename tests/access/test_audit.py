"""The audit log: who did what, page by page, and no more of it than the key may see."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from cmserver.access import audit
from cmserver.access.audit import repository
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from tests.access.tools import Api
from tests.conftest import Cast, mint
from tests.table import try_rows


@pytest.fixture
def alice(client: httpx.AsyncClient, cast: Cast) -> Api:
    return Api(client, cast.alice.key)


async def actions(api: Api, **query: str | int) -> list[str]:
    response = await api.get("/audit", **query)
    assert response.status_code == 200, response.text
    return [entry["action"] for entry in response.json()["entries"]]


async def test_a_row_says_who_did_what_to_which_thing_with_which_request(client: httpx.AsyncClient, cast: Cast):
    headers = {**cast.bob.headers, "X-Request-Id": "ticket-7"}
    made = (await client.post("/v1/keys", json={"name": "secret plans", "project": "orders"}, headers=headers)).json()

    (entry,) = (await Api(client, cast.alice.key).get("/audit", action="key.created")).json()["entries"]

    assert entry == {
        "id": entry["id"],
        "action": "key.created",
        "resourceType": "api_key",
        "resourceId": made["id"],
        "projectId": str(cast.alice.project.id),
        "actorId": "bob",
        "apiKeyId": str(cast.bob.principal.key_id),
        "userId": None,
        "requestId": "ticket-7",
        "details": {"scopes": ["memories:read"], "actor": "bob"},
        "createdAtEpoch": entry["createdAtEpoch"],
    }


async def test_rows_come_page_by_page_newest_first(alice: Api):
    ids = [(await alice.made())["id"] for _ in range(3)]

    first = (await alice.get("/audit", action="key.created", limit=2)).json()
    second = (await alice.get("/audit", action="key.created", limit=2, cursor=first["nextCursor"])).json()

    assert [entry["resourceId"] for entry in first["entries"] + second["entries"]] == ids[::-1]
    assert second["nextCursor"] is None


async def test_rows_are_found_by_each_of_their_marks(alice: Api, client: httpx.AsyncClient, cast: Cast):
    bob = Api(client, cast.bob.key)
    key = (await bob.made(project="orders"))["id"]
    await alice.delete(f"/keys/{key}")
    await alice.patch("/teams/blue", metadata={"a": 1})

    assert await actions(alice, resourceId=key) == ["key.revoked", "key.created"]
    assert await actions(alice, resourceType="team") == ["team.updated"]
    assert await actions(alice, actor="bob") == ["key.created"]
    assert await actions(alice, key=str(cast.bob.principal.key_id)) == ["key.created"]
    assert await actions(alice, project="git@github.com:acme/orders.git") == ["key.revoked", "key.created", "project.created"]
    assert await actions(alice, project="orders", action="key.created", actor="alice") == []


async def test_another_team_s_rows_are_not_there(alice: Api, client: httpx.AsyncClient, cast: Cast):
    key = (await alice.made())["id"]
    charlie = Api(client, cast.charlie.key)

    assert await actions(charlie) == ["project.created"]  # his own
    assert await actions(charlie, resourceId=key) == []
    assert await actions(charlie, project=str(cast.alice.project.id)) == await actions(charlie, project=str(new_id())) == []


async def test_a_bound_key_reads_what_was_done_in_its_project(alice: Api, client: httpx.AsyncClient, cast: Cast, db: Db):
    shop = (await alice.post("/projects", canonicalId="shop")).json()["project"]["id"]
    await alice.made()
    _, text = await mint(db, cast.alice.team_id, "bound", scopes=["admin"], project_id=cast.alice.project.id)
    bound = Api(client, text)
    own = await bound.made()

    assert await actions(bound) == await actions(bound, project="orders") == ["key.created", "project.created"]
    assert await actions(bound, resourceId=own["id"]) == ["key.created"]
    assert await actions(bound, resourceId=shop) == []
    for named in (shop, "shop", str(new_id()), "nothing"):
        response = await bound.get("/audit", project=named)
        assert (response.status_code, response.json()["error"]) == (404, "NotFound")


async def test_what_was_done_in_a_project_outlives_it(alice: Api, cast: Cast, db: Db):
    shop = (await alice.post("/projects", canonicalId="shop")).json()["project"]["id"]
    async with db.system() as conn:
        await conn.execute("DELETE FROM projects WHERE id = %s", [shop])

    assert await actions(alice, project=shop) == ["project.created"]


@try_rows(
    ("query", "path"),
    [
        ({"cursor": "x"}, "$.cursor"),
        ({"cursor": "-1"}, "$.cursor"),
        ({"cursor": "1" * 19}, "$.cursor"),
        ({"cursor": "\u0663"}, "$.cursor"),
        ({"key": "x"}, "$.key"),
        ({"limit": "0"}, "$.limit"),
        ({"limit": "201"}, "$.limit"),
        ({"actor": "a\x00"}, "$.actor"),
        ({"actions": "x"}, "$.actions"),
    ],
)
async def test_a_wrong_question_is_refused_by_its_path(alice: Api, query: dict[str, Any], path: str):
    response = await alice.get("/audit", **query)

    assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, [path])


async def test_the_log_is_only_appended_to(cast: Cast, db: Db):
    async with db.tenant(cast.alice.team_id) as conn:
        await audit.record(conn, cast.alice.principal, "tried.it", "nothing", None)

    for statement in ("UPDATE audit_log SET action = 'x'", "DELETE FROM audit_log", "TRUNCATE audit_log"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with db.tenant(cast.alice.team_id) as conn:
                await conn.execute(statement)


@pytest.mark.parametrize(
    ("of_project", "index", "every"),
    [(False, "audit_log_team", 20), (True, "audit_log_project", 4)],  # of a team that has few of the rows; of one that has many
)
async def test_a_page_is_read_from_the_index_that_has_its_order(cast: Cast, db: Db, of_project: bool, index: str, every: int):
    seed = """
        INSERT INTO audit_log (team_id, project_id, action, resource_type)
        SELECT CASE WHEN n %% %s = 0 THEN %s::uuid ELSE %s::uuid END, CASE WHEN n %% (2 * %s) = 0 THEN %s::uuid END,
               'observations.served', 'project'
          FROM generate_series(1, 40000) n
    """
    async with db.system() as conn:
        await conn.execute(seed, [every, cast.alice.team_id, cast.charlie.team_id, every, cast.alice.project.id])
        await conn.execute("ANALYZE audit_log")
    query = repository.NEWEST_OF_PROJECT if of_project else repository.NEWEST_OF_TEAM
    names = ("before", "action", "resource_type", "resource_id", "actor_id", "api_key_id")
    filters = {**dict.fromkeys(names), "without_reads": False}

    async with db.tenant(cast.alice.team_id) as conn:
        params = {**filters, "team_id": cast.alice.team_id, "project_id": cast.alice.project.id, "limit": 51, "before": None}
        cursor = await conn.execute("EXPLAIN " + query.text, params, prepare=False)
        plan = "\n".join(str(row[0]) for row in await cursor.fetchall())

    assert f"Index Scan Backward using {index}" in plan, plan
    assert "Sort" not in plan
