"""Projects as they are listed, changed, archived and brought back; and that a name never means two of them."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.notifications import NotificationListener
from tests.access.tools import Api, audited, everything
from tests.conftest import Cast, mint
from tests.table import try_rows

NO_SUCH = (404, "Project not found.")


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["message"]


@pytest.fixture
def alice(client: httpx.AsyncClient, cast: Cast) -> Api:
    return Api(client, cast.alice.key)


@pytest.fixture
async def shop(alice: Api) -> dict[str, Any]:
    """Alice's second project."""
    return (await alice.post("/projects", canonicalId="github.com/acme/shop", name="The shop")).json()["project"]


async def bound_to(client: httpx.AsyncClient, db: Db, cast: Cast, scopes: list[str]) -> Api:
    """Asks with a key that is bound to the project orders."""
    _, text = await mint(db, cast.alice.team_id, "bound", scopes=scopes, project_id=cast.alice.project.id)
    return Api(client, text)


@pytest.mark.parametrize(
    "named", ["github.com/acme/orders", "https://github.com/acme/orders.git", "git@github.com:acme/orders.git", "orders", "id"]
)
async def test_a_project_is_got_by_any_of_its_names(alice: Api, cast: Cast, named: str):
    named = str(cast.alice.project.id) if named == "id" else named

    response = await alice.get(f"/projects/{quote(named, safe='')}")

    project = response.json()["project"]
    assert project == {
        "id": str(cast.alice.project.id),
        "teamId": str(cast.alice.team_id),
        "canonicalId": "github.com/acme/orders",
        "name": "orders",
        "aliases": [],
        "metadata": {},
        "generationPolicy": {},
        "retention": {},
        "searchLanguage": "english",
        "consolidation": "suggest",
        "mergeWithModel": False,
        "isolated": False,
        "joinedTo": None,
        "archivedAtEpoch": None,
        "createdAtEpoch": project["createdAtEpoch"],
        "updatedAtEpoch": project["updatedAtEpoch"],
    }


async def test_projects_come_page_by_page_newest_first_and_only_the_team_s_own(alice: Api, shop: dict[str, Any]):
    third = (await alice.post("/projects", canonicalId="tools")).json()["project"]

    first = (await alice.get("/projects", limit=2)).json()
    second = (await alice.get("/projects", limit=2, cursor=first["nextCursor"])).json()

    assert first["projects"] == [third, shop]
    assert [project["canonicalId"] for project in second["projects"]] == ["github.com/acme/orders"]
    assert second["nextCursor"] is None


@try_rows("query", [{"cursor": "x"}, {"cursor": ""}, {"limit": 0}, {"limit": 201}, {"archived": "perhaps"}, {"a": 1}])
async def test_a_wrong_question_for_projects_is_refused(alice: Api, query: dict[str, str | int]):
    assert (await alice.get("/projects", **query)).status_code == 400


async def test_a_change_leaves_alone_what_it_does_not_say(alice: Api, shop: dict[str, Any], db: Db):
    path = f"/projects/{shop['id']}"

    named = (await alice.patch(path, name="Shop ghp_" + "a1B2c3D4e5" * 4)).json()["project"]
    noted = (
        await alice.patch(path, metadata={"floor": 3, "password": "hunter2hunter2"}, generationPolicy={"mode": "at_end"})
    ).json()
    cleared = (await alice.patch(path, metadata=None, generationPolicy=None, aliases=None)).json()["project"]

    same = {**shop, "updatedAtEpoch": None}
    assert {**named, "updatedAtEpoch": None} == {**same, "name": "Shop [redacted:github_token]"}
    assert noted["project"]["metadata"] == {"floor": 3, "password": "[redacted:password]"}
    assert (noted["project"]["generationPolicy"], noted["project"]["name"]) == ({"mode": "at_end"}, named["name"])
    assert {**cleared, "updatedAtEpoch": None} == {**same, "name": named["name"]}
    assert await audited(db, "project.updated") == [("project.updated", shop["id"])] * 3


async def test_an_older_canonical_id_stays_an_alias_in_every_form(alice: Api, shop: dict[str, Any]):
    changed = await alice.patch(f"/projects/{shop['id']}", canonicalId="https://gitlab.com/acme/shop.git")

    project = changed.json()["project"]
    assert (project["canonicalId"], project["aliases"]) == ("gitlab.com/acme/shop", ["github.com/acme/shop"])
    for named in ("gitlab.com/acme/shop", "git@github.com:acme/shop.git"):
        found = await alice.get(f"/projects/{quote(named, safe='')}")
        assert found.json()["project"]["id"] == shop["id"]
    again = await alice.post("/projects", canonicalId="github.com/acme/shop")
    assert (again.status_code, again.json()["project"]["id"]) == (200, shop["id"])
    back = (await alice.patch(f"/projects/{shop['id']}", canonicalId="github.com/acme/shop")).json()["project"]
    assert (back["canonicalId"], back["aliases"]) == ("github.com/acme/shop", ["gitlab.com/acme/shop"])


async def test_aliases_are_brought_into_their_canonical_form_and_replace_those_before(alice: Api, shop: dict[str, Any]):
    path = f"/projects/{shop['id']}"

    first = await alice.patch(path, aliases=["https://GitLab.com/acme/shop.git", "laden", "github.com/acme/shop", "laden"])
    found = await alice.get("/projects/laden")
    second = await alice.patch(path, aliases=["boutique"])
    gone = await alice.get("/projects/laden")

    assert first.json()["project"]["aliases"] == ["gitlab.com/acme/shop", "laden"]
    assert found.json()["project"]["id"] == shop["id"]
    assert second.json()["project"]["aliases"] == ["boutique"]
    assert refusal(gone) == NO_SUCH


@pytest.mark.parametrize(
    "body",
    [
        {"canonicalId": "git@github.com:acme/orders.git"},
        {"canonicalId": "bestellungen"},
        {"aliases": ["one", "https://github.com/acme/orders"]},
        {"aliases": ["bestellungen"], "name": "Shop"},
    ],
)
async def test_a_name_of_another_project_is_not_given_twice(alice: Api, shop: dict[str, Any], db: Db, body: dict[str, object]):
    await alice.patch("/projects/orders", aliases=["bestellungen"])
    before = await everything(db)

    response = await alice.patch(f"/projects/{shop['id']}", **body)

    assert response.status_code == 409
    assert "another project" in response.json()["message"]
    assert await everything(db) == before


async def test_a_name_that_is_given_by_two_at_once_is_given_to_one(alice: Api, shop: dict[str, Any], db: Db):
    answers = await asyncio.gather(
        alice.patch("/projects/orders", aliases=["laden"]),
        alice.patch(f"/projects/{shop['id']}", canonicalId="laden"),
        alice.post("/projects", canonicalId="laden"),
    )

    there = [
        project
        for project in (await alice.get("/projects")).json()["projects"]
        if "laden" in (project["canonicalId"], *project["aliases"])
    ]
    assert len(there) == 1
    assert {response.status_code for response in answers} <= {200, 201, 409}
    assert any(response.status_code == 409 for response in answers[:2])


async def test_two_teams_may_give_the_same_names(alice: Api, client: httpx.AsyncClient, cast: Cast):
    charlie = Api(client, cast.charlie.key)

    ours = await alice.patch("/projects/orders", aliases=["bestellungen"])
    theirs = await charlie.patch("/projects/orders", aliases=["bestellungen"])

    assert (ours.status_code, theirs.status_code) == (200, 200)
    assert (await charlie.get("/projects/bestellungen")).json()["project"]["id"] == str(cast.charlie.project.id)


@try_rows(
    ("body", "path"),
    [
        ({"name": None}, "$.name"),
        ({"name": "  "}, "$.name"),
        ({"name": "x" * 201}, "$.name"),
        ({"canonicalId": None}, "$.canonicalId"),
        ({"canonicalId": "https://"}, "$.canonicalId"),
        ({"canonicalId": str(new_id())}, "$.canonicalId"),
        ({"aliases": ["fine", "https://"]}, "$.aliases[1]"),
        ({"aliases": [str(new_id())]}, "$.aliases[0]"),
        ({"aliases": ["x"] * 101}, "$.aliases"),
        ({"metadata": 1}, "$.metadata"),
        ({"generationPolicy": {"debounceSeconds": -1}}, "$.generationPolicy.debounceSeconds"),
        ({"archived": "yes"}, "$.archived"),
        ({"archivedAtEpoch": 1}, "$.archivedAtEpoch"),
    ],
)
async def test_a_wrong_change_is_refused_by_its_path(alice: Api, db: Db, body: dict[str, object], path: str):
    before = await everything(db)

    response = await alice.patch("/projects/orders", **body)

    assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, [path]), response.text
    assert await everything(db) == before


async def test_an_archived_project_is_found_by_its_id_only(alice: Api, shop: dict[str, Any], db: Db):
    path = f"/projects/{shop['id']}"

    archived = await alice.patch("/projects/github.com%2Facme%2Fshop", archived=True)

    assert archived.json()["project"]["archivedAtEpoch"] is not None
    assert await audited(db, "project.archived") == [("project.archived", shop["id"])]
    for named in ("github.com%2Facme%2Fshop", "The shop"):
        assert refusal(await alice.get(f"/projects/{named}")) == NO_SUCH
    assert refusal(await alice.post("/search", projectId=shop["id"], query="x")) == NO_SUCH
    assert refusal(await alice.post("/keys", project=shop["id"])) == NO_SUCH
    assert (await alice.get(path)).json() == archived.json()
    assert [project["name"] for project in (await alice.get("/projects")).json()["projects"]] == ["orders"]
    assert (await alice.get("/projects", archived=True)).json()["projects"] == [archived.json()["project"]]


async def test_an_archived_project_keeps_its_names_and_comes_back_with_them(alice: Api, shop: dict[str, Any], db: Db):
    path = f"/projects/{shop['id']}"
    await alice.patch(path, archived=True, aliases=["laden"])
    before = await everything(db)

    for response in (
        await alice.post("/projects", canonicalId="github.com/acme/shop"),
        await alice.post("/projects", canonicalId="laden"),
        await alice.patch("/projects/orders", aliases=["laden"]),
        await alice.patch("/projects/orders", canonicalId="github.com/acme/shop"),
    ):
        assert response.status_code == 409
        assert "archived" in response.json()["message"]
        assert shop["id"] in response.json()["message"]
    assert await everything(db) == before

    back = await alice.patch(path, archived=False)

    assert (back.json()["project"]["archivedAtEpoch"], back.json()["project"]["aliases"]) == (None, ["laden"])
    assert (await alice.get("/projects/laden")).json() == back.json()


async def test_a_bound_key_sees_and_changes_its_own_project_only(
    client: httpx.AsyncClient, alice: Api, shop: dict[str, Any], cast: Cast, db: Db
):
    bound = await bound_to(client, db, cast, ["admin"])
    before = await everything(db)

    for named in (shop["id"], "github.com%2Facme%2Fshop", "The shop", str(new_id())):
        assert refusal(await bound.get(f"/projects/{named}")) == NO_SUCH
        assert refusal(await bound.patch(f"/projects/{named}", name="mine")) == NO_SUCH
    assert [project["name"] for project in (await bound.get("/projects")).json()["projects"]] == ["orders"]
    assert (await bound.get("/projects", archived=True)).json()["projects"] == []
    assert await everything(db) == before
    assert (await bound.patch("/projects/orders", name="Orders")).json()["project"]["name"] == "Orders"


@pytest.mark.parametrize("body", [{"canonicalId": "github.com/acme/shop"}, {"canonicalId": "free"}, {"aliases": ["free"]}])
async def test_a_bound_key_cannot_ask_by_renaming_which_projects_there_are(
    client: httpx.AsyncClient, shop: dict[str, Any], cast: Cast, db: Db, body: dict[str, object]
):
    bound = await bound_to(client, db, cast, ["admin"])
    before = await everything(db)

    response = await bound.patch("/projects/orders", **body)

    assert response.status_code == 403
    assert response.json()["message"].startswith("This key is bound to a project")
    assert await everything(db) == before


async def test_a_bound_key_does_not_learn_that_another_project_has_the_same_name(
    client: httpx.AsyncClient, alice: Api, cast: Cast, db: Db
):
    bound = await bound_to(client, db, cast, ["memories:read"])
    await alice.post("/projects", canonicalId="gitlab.com/acme/orders")

    status, message = refusal(await alice.get("/projects/orders"))  # it means two
    assert (status, "gitlab.com/acme/orders" in message, "github.com/acme/orders" in message) == (404, True, True)
    assert (await bound.get("/projects/orders")).json()["project"]["id"] == str(cast.alice.project.id)


async def test_a_project_says_its_own_policy_and_its_team_s(alice: Api, cast: Cast, db: Db):
    await alice.patch("/projects/orders", generationPolicy={"mode": "per_event"})
    await alice.patch("/teams/blue", generationPolicy={"skipTools": ["Read"]})

    project = await Projects(db, NotificationListener(db.url)).find(cast.alice.principal, "orders")

    assert (project.policy.mode, project.team_policy.skip_tools) == ("per_event", ["Read"])


async def test_a_process_that_hears_nothing_remembers_no_name(alice: Api, cast: Cast, db: Db):
    projects = Projects(db, NotificationListener(db.url))
    assert (await projects.find(cast.alice.principal, "orders")).name == "orders"

    await alice.patch("/projects/orders", name="Orders", metadata={"a": 1})

    assert (await projects.find(cast.alice.principal, "github.com/acme/orders")).name == "Orders"
