"""Teams: one's own is the only one there is; the operator makes them, admins change and close them."""

from __future__ import annotations

import httpx
import pytest

from cmserver.access.authenticate import Authenticator
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden
from tests.access.tools import Api, audited, everything
from tests.conftest import Cast, mint
from tests.rows import rows
from tests.table import try_rows


async def test_a_key_sees_its_own_team_by_id_and_by_name(client: httpx.AsyncClient, cast: Cast):
    alice = Api(client, cast.alice.key)

    listed = await alice.get("/teams")
    by_id = await alice.get(f"/teams/{cast.alice.team_id}")
    by_name = await alice.get("/teams/blue")

    (team,) = listed.json()["teams"]
    assert listed.json()["nextCursor"] is None
    assert by_id.json() == by_name.json() == {"team": team}
    assert team == {
        "id": str(cast.alice.team_id),
        "name": "blue",
        "metadata": {},
        "generationPolicy": {},
        "retention": {},
        "approvesRules": False,
        "untoldShare": 0,
        "words": "members",
        "requestsPerMinute": None,
        "eventsPerMonth": None,
        "archivedAtEpoch": None,
        "createdAtEpoch": team["createdAtEpoch"],
        "updatedAtEpoch": team["updatedAtEpoch"],
    }


async def test_the_operator_makes_a_team_whose_first_key_may_do_everything_in_it(client: httpx.AsyncClient, cast: Cast, db: Db):
    response = await Api(client, cast.alice.key).post("/teams", name="green", metadata={"floor": 3})

    assert response.status_code == 201
    made = response.json()
    assert (made["team"]["name"], made["team"]["metadata"]) == ("green", {"floor": 3})
    assert (made["key"]["scopes"], made["key"]["actorId"], made["key"]["requestsPerMinute"]) == (["admin"], "alice", 600)
    green = Api(client, made["apiKey"])
    assert (await green.get("/teams")).json()["teams"] == [made["team"]]
    (member,) = (await green.get("/teams/green/members")).json()["members"]
    assert (member["userId"], member["role"]) == ("alice", "owner")
    assert (await green.post("/teams", name="yellow")).status_code == 403  # admin, not *
    team, key = made["team"]["id"], made["key"]["id"]
    assert [row["resource_id"] for row in await rows(db, "SELECT resource_id FROM audit_log WHERE team_id = %s ORDER BY id", team)][
        :3
    ] == [team, "alice", key]


async def test_a_name_that_is_taken_is_told_to_the_operator(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice = Api(client, cast.alice.key)
    before = await everything(db)

    made = await alice.post("/teams", name="red")
    renamed = await alice.patch("/teams/blue", name="red", metadata={"a": 1})

    for response in (made, renamed):
        assert response.status_code == 409
        assert response.json()["error"] == "Conflict"
    assert await everything(db) == before


@try_rows("body", [{}, {"name": ""}, {"name": "   "}, {"name": "x" * 201}, {"name": "a\x00"}, {"name": "x", "a": 1}])
async def test_what_cannot_be_a_team_is_refused(client: httpx.AsyncClient, cast: Cast, db: Db, body: dict[str, object]):
    before = await everything(db)

    response = await Api(client, cast.alice.key).post("/teams", **body)

    assert (response.status_code, response.json()["error"]) == (400, "ValidationError")
    assert await everything(db) == before


async def test_an_admin_changes_what_belongs_to_the_team_and_the_rest_stays(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, text = await mint(db, cast.alice.team_id, "bob", scopes=["admin"])
    admin = Api(client, text)

    await admin.patch("/teams/blue", metadata={"floor": 3, "password": "hunter2hunter2"})
    changed = await admin.patch("/teams/blue", generationPolicy={"mode": "at_end", "skipTools": ["Read"]}, name="blue")
    cleared = await admin.patch("/teams/blue", generationPolicy=None)

    team = changed.json()["team"]
    assert team["metadata"] == {"floor": 3, "password": "[redacted:password]"}
    assert team["generationPolicy"] == {"mode": "at_end", "skipTools": ["Read"]}
    assert (cleared.json()["team"]["generationPolicy"], cleared.json()["team"]["metadata"]) == ({}, team["metadata"])
    assert await audited(db, "team.") == [("team.updated", str(cast.alice.team_id))] * 3


async def test_the_name_and_the_limits_of_a_team_are_the_operator_s(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, text = await mint(db, cast.alice.team_id, "bob", scopes=["admin"])
    before = await everything(db)
    for body in ({"name": "red"}, {"name": "green"}, {"requestsPerMinute": 5}, {"eventsPerMonth": None}):
        response = await Api(client, text).patch("/teams/blue", **body)
        assert (response.status_code, "operator" in response.json()["message"]) == (403, True)
    assert await everything(db) == before

    operator = Api(client, cast.alice.key)
    limited = await operator.patch("/teams/blue", name="azure", requestsPerMinute=5000, eventsPerMonth=0)
    free = await operator.patch("/teams/azure", requestsPerMinute=None)

    team = limited.json()["team"]
    assert (team["name"], team["requestsPerMinute"], team["eventsPerMonth"]) == ("azure", 5000, 0)
    assert (free.json()["team"]["requestsPerMinute"], free.json()["team"]["eventsPerMonth"]) == (None, 0)


@try_rows(
    ("body", "path"),
    [
        ({"name": None}, "$.name"),
        ({"archived": None}, "$.archived"),
        ({"requestsPerMinute": 0}, "$.requestsPerMinute"),
        ({"eventsPerMonth": -1}, "$.eventsPerMonth"),
        ({"generationPolicy": {"mode": "sometimes"}}, "$.generationPolicy.mode"),
        ({"generationPolicy": {"skip": []}}, "$.generationPolicy.skip"),
        ({"metadata": []}, "$.metadata"),
        ({"archivedAt": 1}, "$.archivedAt"),
    ],
)
async def test_a_wrong_change_of_a_team_is_refused_by_its_path(
    client: httpx.AsyncClient, cast: Cast, db: Db, body: dict[str, object], path: str
):
    before = await everything(db)

    response = await Api(client, cast.alice.key).patch("/teams/blue", **body)

    assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, [path])
    assert await everything(db) == before


async def test_a_key_that_is_bound_to_a_project_sees_the_team(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, text = await mint(db, cast.alice.team_id, "bound", scopes=["*"], project_id=cast.alice.project.id)

    assert (await Api(client, text).get("/teams/blue")).status_code == 200


async def test_archiving_the_team_is_the_last_thing_its_keys_do(
    client: httpx.AsyncClient, cast: Cast, db: Db, authenticate: Authenticator
):
    alice = Api(client, cast.alice.key)

    archived = await alice.patch("/teams/blue", archived=True)

    assert archived.json()["team"]["archivedAtEpoch"] is not None
    assert (await alice.get("/teams")).status_code == 403
    with pytest.raises(Forbidden):
        await authenticate(cast.bob.key, "")
    assert await audited(db, "team.") == [("team.archived", str(cast.alice.team_id))]
    assert (await Api(client, cast.charlie.key).get("/teams")).status_code == 200
