"""There is one list of members: whoever is in it by name or by an account is added, changed and removed in the same way."""

from __future__ import annotations

import httpx
import pytest
from httpx import Response

from cmserver.access.keys import manage as keys
from cmserver.access.keys.model import KeyRequest
from cmserver.access.people import manage as people
from cmserver.access.people import repository
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import Client
from cmserver.base.db import Db
from cmserver.base.errors import Conflict
from cmserver.base.http.frame import AsgiFrame
from tests.access.tools import Api
from tests.conftest import Cast, mint
from tests.doors.web.visitor import join, make_user, sign_in, visit_as
from tests.rows import rows

MEMBERS = "/teams/blue/members"


def by_name(response: Response) -> dict[str, tuple[str, bool]]:
    """Role, and whether there is an account."""
    return {one["userId"]: (one["role"], one["accountId"] is not None) for one in response.json()["members"]}


async def reads(client: httpx.AsyncClient, key: str) -> int:
    return (await client.get("/v1/observations", headers={"X-Api-Key": key})).status_code


async def test_both_kinds_of_members_stand_in_the_list_and_on_the_page(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db
):
    alice = Api(client, cast.alice.key)
    visitor = await visit_as(app, db, cast.alice.team_id, name="Ann")
    await alice.put(f"{MEMBERS}/bob@example.org", role="member")
    stranger = await visit_as(app, db, cast.charlie.team_id, name="Zoe")

    assert by_name(await alice.get(MEMBERS)) == {"Ann": ("owner", True), "bob@example.org": ("member", False)}
    assert [one["name"] for one in (await alice.get("/users")).json()["users"]] == ["Ann"]
    page = (await visitor.get("/ui/team")).text
    assert "bob@example.org" in page
    assert "keys only" in page
    theirs = (await stranger.get("/ui/team")).text
    assert "bob@example.org" not in theirs
    assert "Ann" not in theirs
    assert "Zoe" not in page
    assert by_name(await Api(client, cast.charlie.key).get("/teams/red/members")) == {"Zoe": ("owner", True)}


async def test_who_accepts_an_invitation_becomes_the_member_of_that_name(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db
):
    alice, accounts = Api(client, cast.alice.key), app.dependencies.get(Accounts)
    await alice.put(f"{MEMBERS}/Rob", role="viewer", metadata={"desk": 4})
    made = await alice.made(actorId="Rob", scopes=["observations:read"])
    invitation = await alice.post("/users/invitations", role="member")
    user = await accounts.accept_as_new(invitation.json()["path"].removeprefix("/ui/join/"), "rob", "a long password")

    assert by_name(await alice.get(MEMBERS)) == {"Rob": ("member", True)}
    assert (await alice.get(MEMBERS)).json()["members"][0]["metadata"] == {"desk": 4}

    visitor = await sign_in(app, user)
    assert (await visitor.client.get("/ui/team")).status_code == 200
    removed = await alice.delete(f"{MEMBERS}/rob")

    assert (removed.status_code, removed.json()["userId"], removed.json()["revokedKeys"]) == (200, "Rob", 1)
    assert await reads(client, made["apiKey"]) == 403
    assert (await visitor.client.get("/ui/team")).status_code == 401


@pytest.mark.parametrize("role", ["viewer", "member"])
async def test_the_name_of_an_owner_makes_nobody_an_owner(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db, role: str):
    alice, accounts = Api(client, cast.alice.key), app.dependencies.get(Accounts)
    await alice.put(f"{MEMBERS}/owner", role="owner")
    token = (await alice.post("/users/invitations", role=role)).json()["path"].removeprefix("/ui/join/")

    with pytest.raises(Conflict):
        await accounts.accept_as_new(token, "OWNER", "a long password")

    assert by_name(await alice.get(MEMBERS)) == {"owner": ("owner", False)}
    assert await rows(db, "SELECT id FROM users") == []
    await accounts.accept_as_new(token, "Ann", "a long password")
    assert by_name(await alice.get(MEMBERS)) == {"owner": ("owner", False), "Ann": (role, True)}


async def test_a_member_whose_account_has_another_name_now_is_nobody_elses(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db
):
    alice, accounts = Api(client, cast.alice.key), app.dependencies.get(Accounts)
    await join(db, await make_user(app, db, "Rob"), cast.alice.team_id, "viewer")
    await rows(db, "UPDATE users SET name = 'Robert' RETURNING id")
    token = (await alice.post("/users/invitations", role="owner")).json()["path"].removeprefix("/ui/join/")

    with pytest.raises(Conflict, match="another person"):
        await accounts.accept_as_new(token, "Rob", "a long password")

    assert by_name(await alice.get(MEMBERS)) == {"Rob": ("viewer", True)}


@pytest.mark.parametrize("by", ["member", "user", "page"])
async def test_who_is_removed_has_nothing_left_by_whatever_door(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db, by: str
):
    alice, accounts = Api(client, cast.alice.key), app.dependencies.get(Accounts)
    ann = await visit_as(app, db, cast.alice.team_id, name="Ann")
    dora = await visit_as(app, db, cast.alice.team_id, name="Dora")
    assert dora.user is not None
    _, for_her = await mint(db, cast.alice.team_id, "Dora", scopes=["observations:read"])
    async with db.system() as conn:
        (team,) = await repository.teams_of(conn, dora.user.id)
        principal = accounts.person_principal(dora.user, team)
        token = (await people.invite(conn, principal, "owner")).token
    assert await reads(client, for_her) == 200

    if by == "member":
        await alice.delete(f"{MEMBERS}/dora")
    elif by == "user":
        await alice.delete("/users/Dora")
    else:
        await ann.post(f"/ui/team/people/{dora.user.id}/remove")

    assert by_name(await alice.get(MEMBERS)) == {"Ann": ("owner", True)}
    assert await reads(client, for_her) == 403
    assert (await dora.client.get("/ui/team")).status_code == 401
    assert (await client.get(f"/ui/join/{token}")).status_code == 404
    assert (await rows(db, "SELECT count(*) AS n FROM invitations"))[0]["n"] == 0


@pytest.mark.parametrize("by", ["member", "page"])
async def test_a_lower_role_of_a_name_reaches_the_keys_on_which_it_stands(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db, by: str
):
    alice = Api(client, cast.alice.key)
    ann = await visit_as(app, db, cast.alice.team_id, name="Ann")
    await alice.put(f"{MEMBERS}/a b/c", role="owner")
    made = await alice.made(actorId="a b/c", scopes=["admin"])
    await alice.put(f"{MEMBERS}/a b/c", role="owner", metadata={})
    assert (await Api(client, made["apiKey"]).get("/audit")).status_code == 200

    if by == "member":
        await alice.put(f"{MEMBERS}/a b/c", role="viewer")
    else:
        page = await ann.post("/ui/team/people/a%20b/c/role", role="viewer")
        assert "a b/c is viewer now." in page.text

    assert (await Api(client, made["apiKey"]).get("/audit")).status_code == 403
    assert await reads(client, made["apiKey"]) == 200


async def test_an_owner_lowers_nobody_whose_key_is_more_than_theirs(client: httpx.AsyncClient, cast: Cast, db: Db):
    await Api(client, cast.alice.key).put(f"{MEMBERS}/owner", role="owner")
    await Api(client, cast.alice.key).put(f"{MEMBERS}/another", role="owner")
    await mint(db, cast.alice.team_id, "owner", scopes=["*"])
    _, admin = await mint(db, cast.alice.team_id, "ann", scopes=["admin"])

    response = await Api(client, admin).put(f"{MEMBERS}/owner", role="viewer")

    assert response.status_code == 403
    assert by_name(await Api(client, admin).get(MEMBERS))["owner"] == ("owner", False)


async def test_who_leaves_ends_no_key_that_only_bears_the_name(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db):
    _, ci = await mint(db, cast.alice.team_id, "ci", scopes=["observations:read"])
    visitor = await visit_as(app, db, cast.alice.team_id, "viewer", name="ci")

    await visitor.post("/ui/profile/leave")

    assert by_name(await Api(client, cast.alice.key).get(MEMBERS)) == {}
    assert await reads(client, ci) == 200


async def test_of_the_owners_who_sign_in_one_stays(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    await alice.put(f"{MEMBERS}/owner", role="owner")
    await visit_as(app, db, cast.alice.team_id, name="Ann")

    for response in (
        await alice.put(f"{MEMBERS}/ann", role="member"),
        await alice.delete(f"{MEMBERS}/Ann"),
        await alice.patch("/users/Ann", role="viewer"),
    ):
        assert response.status_code == 409
    assert (await alice.delete(f"{MEMBERS}/owner")).status_code == 200


async def test_the_routes_of_people_know_none_without_an_account(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    await alice.put(f"{MEMBERS}/bob", role="member")

    assert (await alice.patch("/users/bob", role="viewer")).status_code == 404
    assert (await alice.delete("/users/bob")).status_code == 404
    assert by_name(await alice.get(MEMBERS)) == {"bob": ("member", False)}


async def test_an_operator_who_makes_a_team_signs_in_to_it(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db):
    user = await make_user(app, db, "Olga", is_operator=True)
    await join(db, user, cast.alice.team_id)
    accounts = app.dependencies.get(Accounts)
    login = await accounts.find(await accounts.start_session(Client(address="127.0.0.1"), user_id=user.id))
    assert login is not None
    assert login.principal is not None
    async with db.system() as conn:
        key = await keys.create(conn, login.principal, KeyRequest(scopes=["*"]))

    assert (await Api(client, key.text).post("/teams", name="green")).status_code == 201

    async with db.system() as conn:
        teams = [(team.team_name, team.role) for team in await repository.teams_of(conn, user.id)]
    assert teams == [("blue", "owner"), ("green", "owner")]
