"""Projects by whatever name people use for them."""

from __future__ import annotations

import asyncio
import unicodedata
from typing import Any

import httpx
import pytest

from cmserver.access.projects import Projects, canonical_id, display_name
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Invalid, NotFound
from cmserver.base.notifications import NotificationListener
from tests.conftest import Cast, bound_to, mint
from tests.lookalikes import BLIND_NAMES, LEGIBLE, NAMES, is_unseen
from tests.table import try_rows


@try_rows(
    ("named", "canonical"),
    [
        ("https://github.com/user/repo", "github.com/user/repo"),
        ("https://github.com/user/repo.git", "github.com/user/repo"),
        ("https://github.com/user/repo/", "github.com/user/repo"),
        ("http://user:secret@GitHub.com/user/repo.git", "github.com/user/repo"),
        ("ssh://git@github.com:2222/user/repo.git", "github.com/user/repo"),
        ("git://example.org/repo.git", "example.org/repo"),
        ("git@github.com:user/repo.git", "github.com/user/repo"),
        ("gitlab.example.com:group/sub/repo.git", "gitlab.example.com/group/sub/repo"),
        ("github.com/user/repo", "github.com/user/repo"),
        ("GITHUB.com/User/Repo", "github.com/user/repo"),
        ("git@GitLab.com:Group/Sub/Repo.git", "gitlab.com/group/sub/repo"),
        ("https://bitbucket.org/User/Repo", "bitbucket.org/user/repo"),
        ("git@git.example.org:User/Repo.git", "git.example.org/User/Repo"),
        ("https://github.com.example.org/User/Repo", "github.com.example.org/User/Repo"),
        ("/home/alice/github.com/User", "/home/alice/github.com/User"),
        ("/home/alice/src/orders", "/home/alice/src/orders"),
        ("/home/alice/src/orders/", "/home/alice/src/orders"),
        ("/home/alice/src/orders/.claude/worktrees/fix-1", "/home/alice/src/orders"),
        ("file:///home/alice/src/orders", "/home/alice/src/orders"),
        ("orders", "orders"),
        ("my project", "my project"),
        ("team/orders", "team/orders"),
        ("ssh://git@github.com:user/repo", "github.com/user/repo"),
        ("github.com:8443/user/repo", "github.com/user/repo"),
        ("https://[::1]:8080/repo.git", "[::1]/repo"),
        ("git@work:user/repo.git", "work/user/repo"),
        ("ssh://github.com/user/repo.git/", "github.com/user/repo"),
        ("codeberg.org:user/repo.git", "codeberg.org/user/repo"),
        ("https://git.example.org:8443/group/sub/repo.git", "git.example.org/group/sub/repo"),
        ("git+ssh://git@github.com/user/repo.git", "github.com/user/repo"),
        ("/srv/git/orders.git", "/srv/git/orders.git"),
        ("file:///srv/git/orders.git", "/srv/git/orders.git"),
        ("@acme/orders", "@acme/orders"),
        ("medium.com/@user/repo", "medium.com/@user/repo"),
        ("alice@example.com", "alice@example.com"),
        ("C:/Users/alice@work/my.app", "C:/Users/alice@work/my.app"),
        ("/srv/c#/what?/orders", "/srv/c#/what?/orders"),
        ("Foo 1.2/orders", "Foo 1.2/orders"),
    ],
)
def test_a_name_has_one_canonical_form(named: str, canonical: str):
    assert canonical_id(named) == canonical
    assert canonical_id(canonical) == canonical


@try_rows("name", [*NAMES, *LEGIBLE])
def test_a_name_is_composed_and_has_nothing_invisible(name: str):
    for named in (f"/srv/{name}", f"git@github.com:acme/{name}.git", f"the {name}"):
        canonical = canonical_id(named)

        assert unicodedata.is_normalized("NFC", canonical)
        assert [letter for letter in canonical if is_unseen(letter)] == []
        assert canonical_id(canonical) == canonical


@try_rows("name", BLIND_NAMES)
def test_a_name_has_no_other_blanks_and_no_boxes(name: str):
    canonical = canonical_id(f"github.com/acme/{name}")

    assert canonical in {"github.com/acme/ab", "github.com/acme/a b"}
    assert canonical_id(f"github.com/acme/one{name[1]}") == "github.com/acme/one"
    with pytest.raises(Invalid):
        canonical_id(name[1])


@pytest.mark.parametrize("named", ["\u3164", "\u200b\u2060", "\u200d", "\u00ad \ufe0f"])
def test_what_nobody_sees_is_no_name(named: str):
    with pytest.raises(Invalid):
        canonical_id(named)


async def test_two_spellings_of_a_name_are_one_project(client: httpx.AsyncClient, cast: Cast):
    for name in ("github.com/acme/cafe\u0301", "github.com/acme/caf\u00e9", "github.com/ac\u200bme/caf\u00e9\u3164"):
        made = await client.post("/v1/projects", json={"canonicalId": name, "name": f"{name}\u2060"}, headers=cast.alice.headers)

        assert made.json()["project"]["canonicalId"] == "github.com/acme/caf\u00e9"
        assert made.json()["project"]["name"] == "github.com/acme/cafe\u0301".replace("e\u0301", "\u00e9")


async def test_a_repository_is_one_project_however_its_case_is_written(client: httpx.AsyncClient, cast: Cast):
    events: list[Any] = []
    for name in ("git@github.com:Acme/Shop.git", "https://GitHub.com/acme/shop", "github.com/ACME/shop"):
        event = {"projectId": name, "eventType": "note", "payload": {"name": name}}
        events.append((await client.post("/v1/events", json=event, headers=cast.alice.headers)).json()["event"])

    assert len({event["projectId"] for event in events}) == 1
    project = (await client.get("/v1/projects/github.com/acme/Shop", headers=cast.alice.headers)).json()["project"]
    assert (project["canonicalId"], project["name"]) == ("github.com/acme/shop", "Shop")


async def test_a_project_of_before_is_found_by_its_old_spelling_and_by_any_other(client: httpx.AsyncClient, cast: Cast, db: Db):
    project_id = await make_as_before(client, cast, db, "github.com/Acme/Shop")

    for name in ("github.com/Acme/Shop", "git@github.com:acme/shop.git", "github.com/ACME/SHOP"):
        event = {"projectId": name, "eventType": "note", "payload": {"name": name}}
        sent = await client.post("/v1/events", json=event, headers=cast.alice.headers)
        assert sent.json()["event"]["projectId"] == project_id


async def test_two_projects_of_before_stay_two_each_found_by_its_own_spelling(client: httpx.AsyncClient, cast: Cast, db: Db):
    upper = await make_as_before(client, cast, db, "github.com/Acme/Shop")
    lower = await make_as_before(client, cast, db, "github.com/acme/shop")

    found = [
        (await client.get(f"/v1/projects/{name}", headers=cast.alice.headers)).json()["project"]["id"]
        for name in ("github.com/Acme/Shop", "github.com/acme/shop", "github.com/ACME/shop")
    ]

    assert found == [upper, lower, lower]


async def make_as_before(client: httpx.AsyncClient, cast: Cast, db: Db, canonical_id: str) -> str:
    """A project whose case has been kept."""
    made = await client.post("/v1/projects", json={"canonicalId": f"former {canonical_id}"}, headers=cast.alice.headers)
    project_id: str = made.json()["project"]["id"]
    async with db.system() as conn:
        await conn.execute("UPDATE projects SET canonical_id = %s WHERE id = %s", [canonical_id, project_id])
    return project_id


async def test_what_a_project_is_called_takes_no_address_from_others(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, unbound = await mint(db, cast.alice.team_id, "mallory", scopes=["events:write"])
    headers = {"X-Api-Key": unbound}
    for name in ("github.com/acme/payroll", "/srv/payroll"):
        made = await client.post("/v1/projects", json={"canonicalId": f"evil {name}", "name": name}, headers=headers)
        event = {"projectId": name, "eventType": "note", "payload": {"x": 1}}

        sent = await client.post("/v1/events", json=event, headers=cast.alice.headers)

        assert made.status_code == 201
        assert sent.json()["event"]["projectId"] != made.json()["project"]["id"]


TOKEN = "ghp_" + "a1B2c3D4e5" * 4


@try_rows(
    ("named", "canonical"),
    [
        (f"{TOKEN}@github.com/acme/x", "github.com/acme/x"),
        ("alice:hunter2@github.com/acme/x.git", "github.com/acme/x"),
        ("alice:hunter2@github.com:acme/x.git", "github.com/acme/x"),
        ("alice:hunter2@gitbox/acme/x", "gitbox/acme/x"),
        ("alice:hunter2@gitbox", "gitbox"),
        ("https://alice:hun/ter2@github.com/acme/x", "github.com/acme/x"),
        ("https://github.com/acme/x.git?access_token=hunter2#readme", "github.com/acme/x"),
        ("https://github.com?access_token=hunter2", "github.com"),
        ("github.com/acme/x?access_token=hunter2", "github.com/acme/x"),
        ("github.com/acme/x#hunter2", "github.com/acme/x"),
        ("git@github.com:acme/x.git?access_token=hunter2", "github.com/acme/x"),
        ("file:///srv/x?access_token=hunter2", "/srv/x"),
        (f"https://{'x' * 900}@github.com/acme/x", "github.com/acme/x"),
        (f"/srv/{TOKEN}/x", "/srv/[redacted:github_token]/x"),
        (f"github.com/{TOKEN}/x", "github.com/[redacted:github_token]/x"),
        (f"my {TOKEN}", "my [redacted:github_token]"),
        (f"my.{TOKEN}", "my.[redacted:github_token]"),
        ("<private>orders</private>", "[redacted:private]"),
    ],
)
def test_no_credential_stays_in_a_name(named: str, canonical: str):
    assert canonical_id(named) == canonical
    assert canonical_id(canonical) == canonical


@try_rows("named", ["", "   ", "x" * 501, "a\x00b", "a\ud800", "https://", "<system-reminder>x", "/" * 5000])
def test_what_cannot_name_a_project_is_refused(named: str):
    with pytest.raises(Invalid):
        canonical_id(named)


def test_people_call_a_project_by_the_last_part_of_its_name():
    assert [display_name(name) for name in ("github.com/acme/orders", "/srv/orders", "orders")] == ["orders"] * 3


async def test_a_new_name_becomes_a_project_once_however_many_ask_at_the_same_moment(db: Db, cast: Cast):
    made = await asyncio.gather(
        *(
            Projects(db, NotificationListener(db.url)).find_or_make(cast.alice.principal, "git@github.com:acme/new.git")
            for _ in range(6)
        )
    )

    assert {project.canonical_id for project in made} == {"github.com/acme/new"}
    assert len({project.id for project in made}) == 1


async def test_the_same_name_in_two_teams_is_two_projects(cast: Cast):
    assert cast.alice.project.canonical_id == cast.charlie.project.canonical_id
    assert cast.alice.project.id != cast.charlie.project.id


async def test_another_team_s_project_does_not_exist(db: Db, cast: Cast):
    with pytest.raises(NotFound):
        await Projects(db, NotificationListener(db.url)).find_or_make(cast.charlie.principal, str(cast.alice.project.id))


async def test_a_key_that_only_reads_makes_no_project(db: Db, cast: Cast):
    reader, _ = await mint(db, cast.alice.team_id, "reader", scopes=["observations:read"])

    with pytest.raises(Forbidden):
        await Projects(db, NotificationListener(db.url)).find_or_make(reader, "github.com/acme/new")


async def test_an_alias_means_its_project(db: Db, cast: Cast):
    async with db.system() as conn:
        await conn.execute(
            "INSERT INTO project_aliases (team_id, alias, project_id) VALUES (%s, 'old.example/orders', %s)",
            [cast.alice.team_id, cast.alice.project.id],
        )

    assert (
        await Projects(db, NotificationListener(db.url)).find(cast.alice.principal, "https://old.example/orders.git")
    ).id == cast.alice.project.id


async def test_a_name_that_two_projects_have_means_neither(db: Db, cast: Cast):
    projects = Projects(db, NotificationListener(db.url))
    await projects.find_or_make(cast.alice.principal, "gitlab.com/acme/orders")

    with pytest.raises(NotFound):
        await projects.find(cast.alice.principal, "orders")


async def test_projects_over_http(client: httpx.AsyncClient, cast: Cast):
    body = {"canonicalId": "https://github.com/acme/shop.git", "name": "The shop"}

    made = await client.post("/v1/projects", json=body, headers=cast.alice.headers)
    found = await client.post("/v1/projects", json={"canonicalId": "github.com/acme/shop"}, headers=cast.bob.headers)
    unknown_key = await client.post("/v1/projects", json={**body, "nmae": 1}, headers=cast.alice.headers)

    assert (made.status_code, made.json()["project"]["canonicalId"], made.json()["project"]["name"]) == (
        201,
        "github.com/acme/shop",
        "The shop",
    )
    assert (found.status_code, found.json()["project"]["id"]) == (200, made.json()["project"]["id"])
    assert unknown_key.status_code == 400
    assert unknown_key.json()["issues"] == [{"path": "$.nmae", "message": "Unknown field"}]


async def test_what_a_project_is_called_and_noted_is_redacted(client: httpx.AsyncClient, cast: Cast, db: Db):
    body = {
        "canonicalId": f"{TOKEN}@github.com/acme/shop?access_token=hunter2",
        "name": f"Shop {TOKEN}",
        "metadata": {"aws": "AKIA" + "ABCDEFGH12345678", "db": {"password": "hunter2"}, "note": "<private>x</private>y"},
    }

    response = await client.post("/v1/projects", json=body, headers=cast.alice.headers)

    assert response.status_code == 201
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT canonical_id, name, metadata FROM projects WHERE id = %s", [response.json()["project"]["id"]]
        )
        assert await cursor.fetchall() == [
            (
                "github.com/acme/shop",
                "Shop [redacted:github_token]",
                {
                    "aws": "[redacted:aws_access_key]",
                    "db": {"password": "[redacted:password]"},
                    "note": "[redacted:private]y",
                },
            )
        ]


async def test_what_cannot_name_a_project_is_refused_by_its_path(client: httpx.AsyncClient, cast: Cast):
    response = await client.post("/v1/projects", json={"canonicalId": "https://"}, headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"][0]["path"] == "$.canonicalId"


async def test_the_project_is_the_one_that_is_named_or_else_the_key_s_own(db: Db, cast: Cast):
    projects, project = Projects(db, NotificationListener(db.url)), cast.alice.project
    bound, _ = await mint(db, cast.alice.team_id, "bound", scopes=["*"], project_id=project.id)

    named = await projects.named_or_own(cast.alice.principal, "orders", at="$.projectId")
    own = await projects.named_or_own(bound, None, at="$.projectId")
    made = await projects.named_or_own(cast.alice.principal, "new", at="$.projectId", make=True)

    assert (named.id, own.id, made.canonical_id) == (project.id, project.id, "new")
    with pytest.raises(NotFound):
        await projects.named_or_own(cast.alice.principal, "newer", at="$.projectId")
    for wrong in (None, "a\x00"):
        with pytest.raises(Invalid) as refused:
            await projects.named_or_own(cast.alice.principal, wrong, at="$.projectId")
        assert [issue.path for issue in refused.value.issues] == ["$.projectId"]


@pytest.mark.parametrize(
    "named", ["github.com/acme/wombast", "https://gitlab.com/acme/wombats.git", "Wombat", "git@github.com:acme/wmobats.git"]
)
async def test_an_unknown_name_is_answered_with_the_nearest_known_ones(client: httpx.AsyncClient, cast: Cast, db: Db, named: str):
    await bound_to(db, cast.alice, "github.com/acme/wombats")

    for key, knows in ((cast.alice.key, True), (cast.charlie.key, False)):
        response = await client.get("/v1/observations", params={"project": named}, headers={"X-Api-Key": key})

        assert (response.status_code, response.json()["error"]) == (404, "NotFound")
        assert ("github.com/acme/wombats" in response.json()["message"]) == knows


async def test_only_names_that_the_key_can_read_are_suggested(client: httpx.AsyncClient, cast: Cast, db: Db):
    bound = await bound_to(db, cast.alice, "github.com/acme/bills")
    _, writer = await mint(db, cast.alice.team_id, "writer", scopes=["observations:write"])

    for key in (bound.key, writer):
        body = {"projectId": "ordres", "title": "x"}
        response = await client.post("/v1/observations", json=body, headers={"X-Api-Key": key})

        assert response.status_code == 404
        assert "orders" not in response.json()["message"]


async def test_an_archived_project_and_a_name_like_no_other_are_not_suggested(client: httpx.AsyncClient, cast: Cast):
    strange = await client.get("/v1/observations", params={"project": "kangaroo"}, headers=cast.alice.headers)
    path = f"/v1/projects/{cast.alice.project.id}"
    assert (await client.patch(path, json={"archived": True}, headers=cast.alice.headers)).status_code == 200
    archived = await client.get("/v1/observations", params={"project": "ordres"}, headers=cast.alice.headers)

    assert (strange.status_code, "orders" in strange.json()["message"]) == (404, False)
    assert (archived.status_code, "orders" in archived.json()["message"]) == (404, False)
