"""A person who is removed, or may less than before, does nothing more by what they made meanwhile."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from cmserver.access.authenticate import key_principal
from cmserver.access.keys import manage as keys
from cmserver.access.keys.manage import narrow_scopes
from cmserver.access.keys.model import Key, KeyRequest, NewKey
from cmserver.access.model import SCOPES, SCOPES_BY_ROLE, Principal
from cmserver.access.people import manage as people
from cmserver.access.people import repository
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import User
from cmserver.access.repository import find_keys
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.http.frame import AsgiFrame
from tests.access.tools import Api, audited
from tests.conftest import Cast
from tests.doors.web.visitor import join, make_user
from tests.table import try_rows

MEMBER = SCOPES_BY_ROLE["member"]


class Team:
    """Dora, an owner of Alice's team, and what she makes there."""

    def __init__(self, app: AsgiFrame, db: Db, cast: Cast, dora: User) -> None:
        self.accounts = app.dependencies.get(Accounts)
        self.db, self.cast, self.dora = db, cast, dora

    async def principal(self) -> Principal:
        async with self.db.system() as conn:
            user = await repository.user(conn, self.dora.id)
            (team,) = await repository.teams_of(conn, self.dora.id)
        assert user is not None
        return self.accounts.person_principal(user, team)

    async def key(self, by: Principal | None = None, **request: Any) -> NewKey:
        principal = by or await self.principal()
        async with self.db.system() as conn:
            return await keys.create(conn, principal, KeyRequest(**request))

    async def as_key(self, key: NewKey) -> Principal:
        async with self.db.system() as conn:
            (stored,) = await find_keys(conn, [key.id], [])
        return key_principal(stored)

    async def invite(self, by: Principal | None = None, **options: Any) -> str:
        principal = by or await self.principal()
        async with self.db.system() as conn:
            return (await people.invite(conn, principal, "owner", **options)).token

    async def is_open(self, token: str) -> bool:
        try:
            await self.accounts.find_invitation(token)
        except NotFound:
            return False
        return True

    async def now(self, key: NewKey) -> Key:
        async with self.db.system() as conn:
            return await keys.require_key(conn, self.cast.alice.principal, key.id)


@pytest.fixture
async def team(app: AsgiFrame, db: Db, cast: Cast) -> Team:
    dora = await make_user(app, db, "Dora")
    await join(db, dora, cast.alice.team_id)
    await join(db, await make_user(app, db, "Erin"), cast.alice.team_id)
    return Team(app, db, cast, dora)


async def test_who_is_removed_does_not_come_back(team: Team, client: httpx.AsyncClient, db: Db, cast: Cast):
    own = await team.key(scopes=["admin"])
    ci = await team.key(scopes=["admin"], actor_id="ci-bot", name="deploys")
    of_ci = await team.key(by=await team.as_key(ci), scopes=["observations:read"], actor_id="another")
    rotated_from = await team.key(scopes=["observations:read"], actor_id="rotated")
    async with db.system() as conn:
        rotated = await keys.rotate(conn, await team.principal(), rotated_from.id, overlap_seconds=60)
    invitations = [
        await team.invite(),
        await team.invite(by=await team.as_key(own)),
        await team.invite(by=await team.as_key(of_ci)),
    ]
    others = await team.key(by=cast.alice.principal, scopes=["observations:read"], actor_id="ci-bot")
    others_invitation = await team.invite(by=cast.alice.principal)

    answer = await Api(client, cast.alice.key).delete("/users/Dora")

    assert answer.status_code == 200, answer.text
    removed = answer.json()
    assert (removed["revokedKeys"], removed["withdrawnInvitations"]) == (5, 3)
    assert sorted((key["actorId"], key["name"]) for key in removed["otherKeys"]) == [
        ("another", ""),
        ("ci-bot", "deploys"),
        ("rotated", ""),
        ("rotated", ""),
    ]
    for key in (own, ci, of_ci, rotated_from, rotated):
        assert (await client.get("/v1/observations", headers={"X-Api-Key": key.text})).status_code == 403
    assert (await client.get("/v1/observations", headers={"X-Api-Key": others.text})).status_code == 200
    assert [await team.is_open(token) for token in [*invitations, others_invitation]] == [False, False, False, True]
    assert len(await audited(db, "person.uninvited")) == 3


async def test_a_role_in_one_team_does_not_reach_the_keys_in_another(team: Team, client: httpx.AsyncClient, db: Db, cast: Cast):
    here = await team.principal()
    await join(db, team.dora, cast.charlie.team_id)
    there = await team.key(by=msgspec.structs.replace(here, team_id=cast.charlie.team_id), scopes=["admin"])

    assert (await Api(client, cast.alice.key).patch("/users/Dora", role="viewer")).status_code == 200

    async with db.system() as conn:
        key = await keys.require_key(conn, cast.charlie.principal, there.id)
    assert key.scopes == ["admin"]
    assert await audited(db, "key.narrowed") == []


async def test_a_lower_role_reaches_the_keys(team: Team, client: httpx.AsyncClient, db: Db, cast: Cast):
    admin = await team.key(scopes=["admin"])
    reading = await team.key(scopes=["observations:read"])
    writing = await team.key(scopes=["events:write", "observations:read"], actor_id="ci-bot")
    only_writing = await team.key(scopes=["events:write"])
    invitation = await team.invite()
    alice = Api(client, cast.alice.key)
    assert (await client.get("/v1/keys", headers={"X-Api-Key": admin.text})).status_code == 200

    assert (await alice.patch("/users/Dora", role="member")).status_code == 200
    as_member = await team.now(admin)
    assert (await client.get("/v1/audit", headers={"X-Api-Key": admin.text})).status_code == 403
    assert (await alice.patch("/users/Dora", role="viewer")).status_code == 200

    assert set(as_member.scopes) == MEMBER
    assert set((await team.now(admin)).scopes) == SCOPES_BY_ROLE["viewer"]
    assert (await team.now(reading)).scopes == ["observations:read"]
    assert (await team.now(writing)).scopes == ["observations:read"]
    assert (await team.now(only_writing)).revoked_at is not None
    event = {"projectId": "x", "sourceType": "api", "eventType": "note", "occurredAtEpoch": 1}
    assert (await client.post("/v1/events", json=event, headers={"X-Api-Key": writing.text})).status_code == 403
    assert not await team.is_open(invitation)
    assert len(await audited(db, "key.narrowed")) == 3

    assert (await alice.patch("/users/Dora", role="owner")).status_code == 200
    assert set((await team.now(admin)).scopes) == SCOPES_BY_ROLE["viewer"]


async def test_who_is_no_operator_any_more_has_no_operators_keys(team: Team, client: httpx.AsyncClient, db: Db, cast: Cast):
    async with db.system() as conn:
        await repository.set_operator(conn, team.dora.id, is_operator=True)
    key = await team.key(scopes=["*"], actor_id="nightly")
    invitations = [await team.invite(makes_operator=True), await team.invite()]
    assert (await client.get("/v1/server", headers={"X-Api-Key": key.text})).status_code == 200

    async with db.system() as conn:
        await people.set_operator(conn, await team.principal(), "Dora", is_operator=False)

    assert (await client.get("/v1/server", headers={"X-Api-Key": key.text})).status_code == 403
    assert (await team.now(key)).scopes == ["admin"]
    assert [await team.is_open(token) for token in invitations] == [False, True]


@try_rows(
    "scopes, allowed, left",
    [
        (["admin"], {"admin"}, ["admin"]),
        (["*"], {"admin", "*"}, ["*"]),
        (["*"], {"admin"}, ["admin"]),
        (["admin"], MEMBER, [scope for scope in SCOPES if scope in MEMBER]),
        (["events:write"], MEMBER, ["events:write"]),
        (["memories:write"], MEMBER, ["memories:write"]),
        (["memories:read", "memories:write"], SCOPES_BY_ROLE["viewer"], ["observations:read", "jobs:read"]),
        (["events:write"], SCOPES_BY_ROLE["viewer"], []),
        (["events:write"], frozenset[str](), []),
    ],
)
def test_scopes_are_narrowed_to_what_is_allowed(scopes: list[str], allowed: frozenset[str], left: list[str]):
    assert sorted(narrow_scopes(scopes, frozenset(allowed))) == sorted(left)
