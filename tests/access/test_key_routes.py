"""Making and listing keys: a key gives at most what it has itself."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from cmserver.access.keys import manage as manage_keys
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from tests.access.tools import Api, audited, everything
from tests.conftest import Cast, mint
from tests.rows import rows
from tests.table import try_rows

DAY_SECONDS = 86_400


async def test_a_key_as_claude_mem_asks_for_it(client: httpx.AsyncClient, cast: Cast, db: Db):
    made = await Api(client, cast.alice.key).made(label="laptop", expiresInDays=30, source="cli")

    key = made["key"]
    assert made["apiKey"].startswith("cms_")
    assert made["mcpUrl"] == "http://cmserver/v1/mcp"
    assert made["connectCommand"] == (
        f"claude mcp add --transport http cmserver http://cmserver/v1/mcp --header 'Authorization: Bearer {made['apiKey']}'"
    )
    assert made["scopes"] == key["scopes"] == ["memories:read"]
    assert datetime.fromisoformat(made["expiresAt"]).timestamp() * 1000 // 1 == key["expiresAtEpoch"]
    assert abs(key["expiresAtEpoch"] - key["createdAtEpoch"] - 30 * DAY_SECONDS * 1000) < 2
    assert (key["name"], key["actorId"], key["projectId"], key["requestsPerMinute"]) == ("laptop", "alice", None, 600)
    assert made["id"] == key["id"]
    reader = Api(client, made["apiKey"])
    assert (await reader.get("/projects")).status_code == 200
    assert (await reader.get("/keys")).status_code == 403
    assert await audited(db, "key.") == [("key.created", made["id"])]


async def test_a_key_is_found_by_its_id_in_either_case(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    made = await alice.made()

    found = await alice.get(f"/keys/{made['id'].upper()}")

    assert found.json()["key"]["id"] == made["id"]


async def test_the_text_of_a_key_is_told_once_and_stored_nowhere(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    made = await alice.made(name="once")
    secret = made["apiKey"].split("_", 2)[2]

    shown = (await alice.get("/keys")).text + (await alice.get(f"/keys/{made['id']}")).text + (await alice.get("/audit")).text

    assert secret not in shown
    assert secret not in str(await everything(db))
    assert made["id"] in shown


@pytest.mark.parametrize(
    ("has", "wants", "status"),
    [
        (["keys:write"], None, 403),  # the default is memories:read
        (["keys:write", "memories:read"], None, 201),
        (["keys:write", "observations:read", "jobs:read"], ["memories:read"], 201),
        (["keys:write", "observations:read"], ["memories:read"], 403),
        (["keys:write", "memories:write"], ["events:write", "sessions:write"], 201),
        (["keys:write", "memories:write"], ["observations:read"], 403),
        (["keys:write"], ["keys:write"], 201),
        (["keys:write"], ["admin"], 403),
        (["admin"], ["admin", "memories:write", "keys:write"], 201),
        (["admin"], ["*"], 403),
        (["*"], ["*"], 201),
        (["memories:read", "memories:write"], ["memories:read"], 403),
    ],
)
async def test_a_key_gives_only_scopes_that_it_has(
    client: httpx.AsyncClient, cast: Cast, db: Db, has: list[str], wants: list[str] | None, status: int
):
    _, text = await mint(db, cast.alice.team_id, "bob", scopes=has)
    before = await everything(db)

    response = await Api(client, text).post("/keys", **({} if wants is None else {"scopes": wants}))

    assert response.status_code == status, response.text
    if status == 201:
        assert response.json()["scopes"] == (wants or ["memories:read"])
    else:
        assert "does not have the scope" in response.json()["message"]
        assert await everything(db) == before


async def test_only_an_admin_makes_keys_for_others(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, writer = await mint(db, cast.alice.team_id, "bob", scopes=["keys:write", "memories:read"])
    _, admin = await mint(db, cast.alice.team_id, "bob", scopes=["admin"])

    own = await Api(client, writer).post("/keys", actorId="bob")
    other = await Api(client, writer).post("/keys", actorId="carol")
    by_admin = await Api(client, admin).post("/keys", actorId="carol")

    assert [response.status_code for response in (own, other, by_admin)] == [201, 403, 201]
    assert by_admin.json()["key"]["actorId"] == "carol"
    assert await rows(db, "SELECT count(*)::int AS n FROM api_keys WHERE actor_id = 'carol'") == [{"n": 1}]


async def test_a_key_that_expires_makes_none_that_lasts_longer(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    brief = await alice.made(scopes=["admin"], expiresInDays=10)

    same = await Api(client, brief["apiKey"]).post("/keys")
    shorter = await Api(client, brief["apiKey"]).post("/keys", expiresInDays=9)
    longer = await Api(client, brief["apiKey"]).post("/keys", expiresInDays=11)

    assert [response.status_code for response in (same, shorter, longer)] == [201, 201, 403]
    assert same.json()["expiresAt"] == brief["expiresAt"]
    assert shorter.json()["key"]["expiresAtEpoch"] < brief["key"]["expiresAtEpoch"]


async def test_a_limited_key_makes_none_with_more(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    limited = Api(client, (await alice.made(scopes=["admin"], requestsPerMinute=100, eventsPerMonth=1000))["apiKey"])
    before = await everything(db)

    for more in (
        {"requestsPerMinute": 101},
        {"requestsPerMinute": None},
        {"eventsPerMonth": 1001},
        {"eventsPerMonth": None},
    ):
        response = await limited.post("/keys", **more)
        assert response.status_code == 403
        assert "would have more" in response.json()["message"]
    assert await everything(db) == before
    same = (await limited.made())["key"]
    less = (await limited.made(requestsPerMinute=99, eventsPerMonth=0))["key"]

    assert (same["requestsPerMinute"], same["eventsPerMonth"]) == (100, 1000)
    assert (less["requestsPerMinute"], less["eventsPerMonth"]) == (99, 0)


async def test_without_a_limit_of_its_own_a_key_may_make_one_without(client: httpx.AsyncClient, cast: Cast):
    key = (await Api(client, cast.alice.key).made(requestsPerMinute=None))["key"]

    assert (key["requestsPerMinute"], key["eventsPerMonth"]) == (None, None)


@pytest.mark.parametrize("field", ["project", "projectId"])
@pytest.mark.parametrize("named", ["github.com/acme/orders", "git@github.com:acme/orders.git", "orders", "id"])
async def test_a_key_is_bound_to_a_project_by_any_of_its_names(client: httpx.AsyncClient, cast: Cast, named: str, field: str):
    """By the other bodies' word, too: were it left unread, the key would be for the whole team."""
    project_id = str(cast.alice.project.id)

    made = await Api(client, cast.alice.key).made(**{field: project_id if named == "id" else named})

    assert made["key"]["projectId"] == project_id
    assert [project["id"] for project in (await Api(client, made["apiKey"]).get("/projects")).json()["projects"]] == [project_id]


async def test_a_key_is_bound_to_no_project_that_is_not_there(client: httpx.AsyncClient, cast: Cast, db: Db):
    before = await everything(db)

    for named in (str(cast.charlie.project.id), str(new_id()), "nothing"):
        for field in ("project", "projectId"):
            response = await Api(client, cast.alice.key).post("/keys", **{field: named})
            assert (response.status_code, response.json()["error"]) == (404, "NotFound")
    assert await everything(db) == before


async def test_a_bound_key_makes_and_sees_keys_of_its_project_only(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    other = (await alice.post("/projects", canonicalId="github.com/acme/shop")).json()["project"]["id"]
    elsewhere = await alice.made(project=other)
    bound = Api(client, (await alice.made(project="orders", scopes=["admin"]))["apiKey"])

    made = await bound.made()
    foreign = await bound.post("/keys", project=other)
    unknown = await bound.post("/keys", project=str(new_id()))
    listed = (await bound.get("/keys")).json()["keys"]

    assert made["key"]["projectId"] == str(cast.alice.project.id)
    assert (foreign.status_code, foreign.json()["message"]) == (unknown.status_code, unknown.json()["message"])
    assert foreign.status_code == 404
    assert {key["projectId"] for key in listed} == {str(cast.alice.project.id)}
    for key_id in (elsewhere["id"], str(cast.alice.principal.key_id), str(new_id())):
        for response in (
            await bound.get(f"/keys/{key_id}"),
            await bound.post(f"/keys/{key_id}/rotate"),
            await bound.delete(f"/keys/{key_id}"),
        ):
            assert (response.status_code, response.json()["error"]) == (404, "NotFound")
    assert await rows(db, "SELECT id FROM api_keys WHERE revoked_at IS NOT NULL OR replaced_by IS NOT NULL") == []


async def test_keys_come_page_by_page_newest_first_and_only_the_team_s_own(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    made = [(await alice.made(name=str(number)))["id"] for number in range(3)]
    await Api(client, cast.charlie.key).made(name="stranger")

    pages, cursor = list[list[str]](), ""
    while True:
        page = (await alice.get("/keys", limit=2, **({"cursor": cursor} if cursor else {}))).json()
        pages.append([key["id"] for key in page["keys"]])
        if not page["nextCursor"]:
            break
        cursor = page["nextCursor"]

    there = [str(cast.bob.principal.key_id), str(cast.alice.principal.key_id)]
    assert [key_id for page in pages for key_id in page] == [*reversed(made), *there]
    assert [len(page) for page in pages] == [2, 2, 1]


async def test_keys_that_are_over_are_told_apart(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    revoked = await alice.made()
    await alice.delete(f"/keys/{revoked['id']}")
    async with db.system() as conn:
        expired = await manage_keys.mint(
            conn, cast.alice.team_id, scopes=["*"], actor_id="old", expires_at=datetime(2026, 1, 1, tzinfo=UTC)
        )

    async def ids(**params: bool) -> set[str]:
        return {key["id"] for key in (await alice.get("/keys", **params)).json()["keys"]}

    people = {str(cast.alice.principal.key_id), str(cast.bob.principal.key_id)}
    assert await ids(active=True) == people
    assert await ids(active=False) == {revoked["id"], str(expired.id)}
    assert await ids() == {*people, revoked["id"], str(expired.id)}


@try_rows(
    ("body", "path"),
    [
        ({"label": "x" * 121}, "$.label"),
        ({"name": "a\x00"}, "$.name"),
        ({"expiresInDays": 0}, "$.expiresInDays"),
        ({"expiresInDays": 366}, "$.expiresInDays"),
        ({"expiresInDays": 1.5}, "$.expiresInDays"),
        ({"scopes": []}, "$.scopes"),
        ({"scopes": ["everything"]}, "$.scopes"),
        ({"scopes": "admin"}, "$.scopes"),
        ({"actorId": ""}, "$.actorId"),
        ({"actorId": "  "}, "$.actorId"),
        ({"project": "https://"}, "$.project"),
        ({"requestsPerMinute": 0}, "$.requestsPerMinute"),
        ({"eventsPerMonth": -1}, "$.eventsPerMonth"),
    ],
)
async def test_what_cannot_be_a_key_is_refused_by_its_path(
    client: httpx.AsyncClient, cast: Cast, db: Db, body: dict[str, object], path: str
):
    before = await everything(db)

    response = await Api(client, cast.alice.key).post("/keys", **body)

    assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, [path]), response.text
    assert await everything(db) == before


async def test_a_secret_does_not_become_the_name_of_a_key(client: httpx.AsyncClient, cast: Cast):
    made = await Api(client, cast.alice.key).made(label="for ghp_" + "a1B2c3D4e5" * 4)

    assert made["key"]["name"] == "for [redacted:github_token]"


async def test_a_limit_by_another_name_is_refused_with_ours(client: httpx.AsyncClient, cast: Cast, db: Db):
    ours = {
        "expiresInDays": [
            "expiresAt",
            "expires_at",
            "expiresAtEpoch",
            "expires_in_days",
            "expiry",
            "ttl",
            "ttlSeconds",
            "validUntil",
        ],
        "scopes": ["scope", "permissions", "role", "readOnly", "allowed"],
        "project": ["projects", "project_id", "projectIds", "workspace"],
        "requestsPerMinute": ["rateLimit", "rpm", "requests_per_minute", "limit"],
        "eventsPerMonth": ["quota", "events_per_month", "monthlyEvents"],
        "/v1/budgets": ["budget", "maxCostUsd", "tokenBudget"],
        "actorId": ["actor", "owner", "userId"],
    }
    before = await everything(db)
    wrong: list[tuple[str, str]] = []
    for wanted, names in ours.items():
        for name in names:
            answered = await Api(client, cast.alice.key).post("/keys", label="x", **{name: "1"})
            found = answered.json()
            if answered.status_code != 400 or found["issues"][0]["path"] != f"$.{name}" or wanted not in found["message"]:
                wrong.append((name, answered.text))

    assert wrong == []
    assert await everything(db) == before
    assert (await Api(client, cast.alice.key).post("/keys", label="x", source="cli", note="laptop")).status_code == 201
