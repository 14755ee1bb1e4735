"""Rotation: a successor that may do the same, and an old key that works on for a while."""

from __future__ import annotations

import httpx
import pytest

from cmserver.base.db import Db
from tests.access.tools import Api, audited, everything
from tests.conftest import Cast, mint
from tests.rows import rows

DAY_MS = 86_400_000
KEPT = ("name", "actorId", "projectId", "scopes", "requestsPerMinute", "eventsPerMonth", "expiresAtEpoch")


async def test_both_keys_work_during_the_overlap_and_may_do_the_same(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    old = await alice.made(
        label="ci",
        scopes=["memories:write"],
        project="orders",
        expiresInDays=90,
        requestsPerMinute=50,
        eventsPerMonth=7,
        actorId="ci",
    )

    response = await alice.post(f"/keys/{old['id']}/rotate", overlapSeconds=3600)

    assert response.status_code == 201
    new, stored = response.json(), (await alice.get(f"/keys/{old['id']}")).json()["key"]
    assert [new["key"][field] for field in KEPT] == [old["key"][field] for field in KEPT]
    assert (stored["replacedBy"], stored["revokedAtEpoch"]) == (new["id"], None)
    assert stored["expiresAtEpoch"] - new["key"]["createdAtEpoch"] == 3_600_000
    for text in (old["apiKey"], new["apiKey"]):
        assert (await Api(client, text).get("/teams")).status_code == 200
    assert await audited(db, "key.rotated") == [("key.rotated", old["id"])]


async def test_the_overlap_is_a_day_unless_it_is_said(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    old = await alice.made()

    new = (await alice.post(f"/keys/{old['id']}/rotate")).json()

    stored = (await alice.get(f"/keys/{old['id']}")).json()["key"]
    assert stored["expiresAtEpoch"] - new["key"]["createdAtEpoch"] == DAY_MS
    assert new["key"]["expiresAtEpoch"] is None


async def test_an_overlap_of_nothing_ends_the_old_key_at_once(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    old = await alice.made()

    new = (await alice.post(f"/keys/{old['id']}/rotate", overlapSeconds=0)).json()

    assert (await Api(client, old["apiKey"]).get("/teams")).status_code == 403
    assert (await Api(client, new["apiKey"]).get("/teams")).status_code == 200


async def test_an_overlap_makes_no_key_live_longer(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    old = await alice.made(expiresInDays=1)

    new = (await alice.post(f"/keys/{old['id']}/rotate", overlapSeconds=2_592_000)).json()

    stored = (await alice.get(f"/keys/{old['id']}")).json()["key"]
    assert stored["expiresAtEpoch"] == new["key"]["expiresAtEpoch"] == old["key"]["expiresAtEpoch"]


async def test_rotating_again_makes_a_chain(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)
    first = await alice.made()
    second = (await alice.post(f"/keys/{first['id']}/rotate")).json()
    third = (await alice.post(f"/keys/{second['id']}/rotate")).json()

    again = await alice.post(f"/keys/{first['id']}/rotate")

    chain = [(await alice.get(f"/keys/{key['id']}")).json()["key"]["replacedBy"] for key in (first, second, third)]
    assert chain == [second["id"], third["id"], None]
    assert again.status_code == 409
    assert second["id"] in again.json()["message"]


async def test_any_key_may_rotate_itself(client: httpx.AsyncClient, cast: Cast):
    made = await Api(client, cast.alice.key).made(scopes=["events:write"], actorId="hook", project="orders", requestsPerMinute=9)
    hook = Api(client, made["apiKey"])

    response = await hook.post(f"/keys/{made['id']}/rotate", overlapSeconds=0)

    assert response.status_code == 201
    assert [response.json()["key"][field] for field in KEPT] == [made["key"][field] for field in KEPT]
    assert (await hook.get("/teams")).status_code == 403


@pytest.mark.parametrize("act", ["rotate", "revoke"])
@pytest.mark.parametrize(
    ("caller", "target"),
    [
        ({"scopes": ["keys:write"]}, {"scopes": ["memories:read"]}),
        ({"scopes": ["admin"]}, {"scopes": ["*"]}),
        ({"scopes": ["keys:write", "memories:read"]}, {"scopes": ["memories:read"], "actorId": "carol"}),
        ({"scopes": ["memories:write"]}, {"scopes": ["memories:write"]}),
    ],
)
async def test_a_key_that_is_more_cannot_be_rotated_or_revoked(
    client: httpx.AsyncClient, cast: Cast, db: Db, act: str, caller: dict[str, object], target: dict[str, object]
):
    alice = Api(client, cast.alice.key)
    lesser = Api(client, (await alice.made(**caller))["apiKey"])
    key = await alice.made(**target)
    before = await everything(db)

    path = f"/keys/{key['id']}"
    response = await (lesser.delete(path) if act == "revoke" else lesser.post(f"{path}/rotate"))

    assert response.status_code == 403, response.text
    assert await everything(db) == before


@pytest.mark.parametrize(
    ("caller", "target"),
    [({"requestsPerMinute": 10}, {"requestsPerMinute": 11}), ({"eventsPerMonth": 10}, {"eventsPerMonth": None})],
)
async def test_a_key_that_may_more_often_cannot_be_rotated_but_revoked(
    client: httpx.AsyncClient, cast: Cast, db: Db, caller: dict[str, object], target: dict[str, object]
):
    alice = Api(client, cast.alice.key)
    narrow = Api(client, (await alice.made(scopes=["admin"], **caller))["apiKey"])
    wide = await alice.made(**target)
    before = await everything(db)

    assert (await narrow.post(f"/keys/{wide['id']}/rotate")).status_code == 403

    assert await everything(db) == before
    assert (await narrow.delete(f"/keys/{wide['id']}")).status_code == 200


async def test_a_key_that_lasts_longer_cannot_be_rotated_but_revoked(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    brief = Api(client, (await alice.made(scopes=["admin"], expiresInDays=10))["apiKey"])
    lasting = await alice.made()
    before = await everything(db)

    rotated = await brief.post(f"/keys/{lasting['id']}/rotate")

    assert (rotated.status_code, rotated.json()["error"]) == (403, "Forbidden")
    assert await everything(db) == before
    assert (await brief.delete(f"/keys/{lasting['id']}")).status_code == 200


async def test_a_key_that_is_over_is_not_rotated(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    revoked, expired = await alice.made(), await alice.made()
    await alice.delete(f"/keys/{revoked['id']}")
    await alice.post(f"/keys/{expired['id']}/rotate", overlapSeconds=0)
    before = await everything(db)

    for key in (revoked, expired):
        response = await alice.post(f"/keys/{key['id']}/rotate")
        assert response.status_code == 409
        assert response.json()["message"] == "This key is revoked or expired. Make a new one instead."
    assert await everything(db) == before


@pytest.mark.parametrize("body", [{"overlapSeconds": -1}, {"overlapSeconds": 2_592_001}, {"overlapSeconds": 1.5}, {"overlap": 1}])
async def test_a_wrong_overlap_is_refused(client: httpx.AsyncClient, cast: Cast, db: Db, body: dict[str, object]):
    before = await everything(db)

    response = await Api(client, cast.alice.key).post(f"/keys/{cast.bob.principal.key_id}/rotate", **body)

    assert response.status_code == 400
    assert await everything(db) == before


async def test_what_was_asked_for_under_the_old_key_goes_on(client: httpx.AsyncClient, cast: Cast, db: Db):
    """Rotation is no revocation: nothing is wrong with what the old key did."""
    _, text = await mint(db, cast.alice.team_id, "alice", scopes=["*"])
    made = await Api(client, text).made()

    await Api(client, text).post(f"/keys/{made['id']}/rotate", overlapSeconds=0)

    assert await rows(db, "SELECT id FROM api_keys WHERE revoked_at IS NOT NULL") == []
