"""Members: who belongs to a team. There is always an owner, and whoever leaves takes no working key along."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx
import pytest

from cmserver.access.bootstrap import bootstrap
from cmserver.access.keys import manage
from cmserver.access.keys.model import KeyRequest
from cmserver.base.db import Db
from tests.access.tools import Api, audited, everything, until_it_waits_for_a_lock
from tests.conftest import Cast, mint
from tests.rows import rows
from tests.table import try_rows


async def test_somebody_becomes_a_member_and_then_an_owner(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)

    added = await alice.put("/teams/blue/members/bob@example.org", role="member", metadata={"desk": 4})
    raised = await alice.put("/teams/blue/members/bob@example.org", role="owner")
    cleared = await alice.put("/teams/blue/members/bob@example.org", role="owner", metadata=None)

    assert [response.status_code for response in (added, raised, cleared)] == [201, 200, 200]
    member = added.json()["member"]
    assert member == {
        "teamId": str(cast.alice.team_id),
        "userId": "bob@example.org",
        "accountId": None,
        "role": "member",
        "metadata": {"desk": 4},
        "createdAtEpoch": member["createdAtEpoch"],
        "updatedAtEpoch": member["updatedAtEpoch"],
    }
    assert (raised.json()["member"]["role"], raised.json()["member"]["metadata"]) == ("owner", {"desk": 4})
    assert cleared.json()["member"]["metadata"] == {}
    assert await audited(db, "member.") == [("member.set", "bob@example.org")] * 3


async def test_members_come_page_by_page_newest_first_and_only_the_team_s_own(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    for user in ("one", "two", "three"):
        await alice.put(f"/teams/blue/members/{user}", role="member")
    await Api(client, cast.charlie.key).put("/teams/red/members/stranger", role="owner")

    first = (await alice.get("/teams/blue/members", limit=2)).json()
    second = (await alice.get("/teams/blue/members", limit=2, cursor=first["nextCursor"])).json()

    assert [member["userId"] for member in first["members"] + second["members"]] == ["three", "two", "one"]
    assert second["nextCursor"] is None


@try_rows("cursor", ["x", "", "AAAA", "_________________w==", "AAAAAAAAAAAA"])
async def test_a_cursor_of_another_kind_is_refused(client: httpx.AsyncClient, cast: Cast, cursor: str):
    response = await Api(client, cast.alice.key).get("/teams/blue/members", cursor=cursor)

    assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, ["$.cursor"])


async def test_whoever_is_removed_has_no_working_key_left(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice, bob = Api(client, cast.alice.key), Api(client, cast.bob.key)
    for user in ("alice", "bob"):
        await alice.put(f"/teams/blue/members/{user}", role="owner")
    second = await alice.made(actorId="bob")

    response = await alice.delete("/teams/blue/members/bob")

    assert response.json() == {
        "deleted": True,
        "userId": "bob",
        "revokedKeys": 2,
        "otherKeys": [],
        "withdrawnInvitations": 0,
    }
    for key in (bob, Api(client, second["apiKey"])):
        assert (await key.get("/teams")).status_code == 403
    assert [member["userId"] for member in (await alice.get("/teams/blue/members")).json()["members"]] == ["alice"]
    assert (await audited(db, "member.removed")) == [("member.removed", "bob")]
    assert len(await audited(db, "key.revoked")) == 2


@pytest.mark.parametrize("act", ["rotates", "makes"])
async def test_nor_one_that_their_key_is_just_making(client: httpx.AsyncClient, cast: Cast, db: Db, act: str):
    alice, bob = Api(client, cast.alice.key), cast.bob.principal
    assert bob.key_id is not None
    await alice.put("/teams/blue/members/bob", role="member")
    async with db.tenant(bob.team_id) as conn:
        if act == "rotates":
            made = await manage.rotate(conn, bob, bob.key_id, overlap_seconds=60)
        else:
            made = await manage.create(conn, bob, KeyRequest(scopes=["admin"]))

        removing = asyncio.create_task(alice.delete("/teams/blue/members/bob"))

        await until_it_waits_for_a_lock(db, removing)
    assert (await removing).json()["revokedKeys"] == 2
    assert (await Api(client, made.text).get("/teams")).status_code == 403


async def test_the_last_owner_stays(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    await alice.put("/teams/blue/members/alice", role="owner")
    await alice.put("/teams/blue/members/bob", role="member")
    before = await everything(db)

    for response in (
        await alice.delete("/teams/blue/members/alice"),
        await alice.put("/teams/blue/members/alice", role="member"),
    ):
        assert response.status_code == 409
        assert response.json()["error"] == "Conflict"
    assert await everything(db) == before


async def test_an_admin_removes_nobody_whose_key_is_more_than_hers(client: httpx.AsyncClient, cast: Cast, db: Db):
    operator = Api(client, cast.alice.key)
    for user in ("alice", "bob"):
        await operator.put(f"/teams/blue/members/{user}", role="owner")
    _, text = await mint(db, cast.alice.team_id, "carol", scopes=["admin"])
    before = await everything(db)

    response = await Api(client, text).delete("/teams/blue/members/bob")

    assert response.status_code == 403
    assert await everything(db) == before


async def test_who_is_no_member_cannot_be_removed_and_keeps_her_keys(client: httpx.AsyncClient, cast: Cast, db: Db):
    response = await Api(client, cast.alice.key).delete("/teams/blue/members/bob")

    assert (response.status_code, response.json()["error"]) == (404, "NotFound")
    assert await rows(db, "SELECT id FROM api_keys WHERE revoked_at IS NOT NULL") == []


@pytest.mark.parametrize("user", [" bob", "x" * 201, "ghp_" + "a1B2c3D4e5" * 4, "   "])
async def test_what_cannot_name_a_member_is_refused(client: httpx.AsyncClient, cast: Cast, db: Db, user: str):
    alice = Api(client, cast.alice.key)
    before = await everything(db)

    for response in (
        await alice.put(f"/teams/blue/members/{quote(user)}", role="member"),
        await alice.delete(f"/teams/blue/members/{quote(user)}"),
    ):
        assert (response.status_code, response.json()["issues"][0]["path"]) == (400, "$.user")
    assert await everything(db) == before


async def test_there_are_three_roles(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)

    bodies: list[dict[str, object]] = [{"role": "guest"}, {}, {"role": None}, {"role": "owner", "scopes": []}]
    for body in bodies:
        assert (await alice.put("/teams/blue/members/bob", **body)).status_code == 400
    assert await rows(db, "SELECT user_id FROM team_members") == []


async def test_two_owners_who_remove_each_other_leave_one(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice, bob = Api(client, cast.alice.key), Api(client, cast.bob.key)
    for user in ("alice", "bob"):
        await alice.put(f"/teams/blue/members/{user}", role="owner")

    answers = await asyncio.gather(
        alice.put("/teams/blue/members/bob", role="member"), bob.put("/teams/blue/members/alice", role="member")
    )

    assert sorted(response.status_code for response in answers) == [200, 409]
    assert len(await rows(db, "SELECT user_id FROM team_members WHERE role = 'owner'")) == 1


async def test_the_first_team_has_an_owner(db: Db):
    await bootstrap(db, "default", None)

    assert await rows(db, "SELECT user_id, role FROM team_members") == [{"user_id": "owner", "role": "owner"}]
    assert await audited(db, "member.") == [("member.set", "owner")]
