"""A key that is bound to an account acts under its name, and what came by it before is shown under that, too."""

from __future__ import annotations

import re
from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.access.bootstrap import bootstrap
from cmserver.access.keys.model import KeyGrant
from cmserver.access.model import Principal
from cmserver.access.people.manage import invite
from cmserver.access.teams import create
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from tests.conftest import Cast, Person, mint
from tests.doors.mcp.tools import call
from tests.doors.web.visitor import ORIGIN, Visitor, join, make_user, sign_in, signed_out
from tests.personal.people import make_two
from tests.personal.test_personal import act, remember
from tests.rows import rows
from tests.table import try_rows

Json = dict[str, Any]
PROJECT = "github.com/acme/orders"
PASSWORD = "correct horse battery"


@pytest.fixture
async def dora(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    """A member of Alice's team, signed in."""
    user = await make_user(app, db, "dora")
    await join(db, user, cast.alice.team_id, "member")
    return await sign_in(app, user)


async def key_of(db: Db, cast: Cast, actor: str) -> Person:
    """A key of before with that name, which is nobody's."""
    principal, text = await mint(db, cast.alice.team_id, actor, scopes=["memories:read", "memories:write"])
    return Person(principal=principal, key=text, project=cast.alice.project)


async def work(client: AsyncClient, who: Person, title: str) -> None:
    """A session with a turn, and an observation."""
    hook = {"session_id": f"s of {title}", "cwd": "/w"}
    headers = {**who.headers, "X-Cmserver-Project": PROJECT}
    for sent in (
        {"hook_event_name": "SessionStart", "source": "startup"},
        {"hook_event_name": "UserPromptSubmit", "prompt": f"Repair {title}"},
        {"hook_event_name": "Stop", "last_assistant_message": f"Repaired {title}."},
    ):
        assert (await client.post("/v1/hooks/claude-code", json={**hook, **sent}, headers=headers)).is_success
    body = {"projectId": PROJECT, "type": "decision", "title": title, "narrative": f"{title} is what it says."}
    await act(client, who, "POST", "/v1/observations", body, 201)


async def names_shown(client: AsyncClient, who: Person) -> list[object]:
    """Who stands on the turn and the observation, wherever they are read: the API, its lines, search, MCP."""
    headers = who.headers
    numbers = [row["number"] for row in (await act(client, who, "GET", f"/v1/observations?project={PROJECT}"))["observations"]]
    number = min(numbers)
    turns = (await act(client, who, "GET", f"/v1/turns?project={PROJECT}"))["turns"]
    found = await act(client, who, "POST", "/v1/search", {"query": "Repair parser", "projectId": PROJECT, "format": "full"})
    sessions = (await act(client, who, "GET", "/v1/sessions"))["sessions"]
    whole = (await client.get(f"/v1/observations/{number}", headers={**headers, "Accept": "text/plain"})).text
    read, _ = await call(client, who, "observation_get", ids=[number, turns[0]["number"]])
    return [
        (await act(client, who, "GET", f"/v1/observations/{number}"))["observation"]["actorId"],
        turns[-1]["actorId"],
        sessions[-1]["actorId"],
        {hit["actorId"] for hit in found["observations"]},
        re.findall(r"By (\S+)", whole),
        sorted(set(re.findall(r"[Bb]y ([a-z-]+)", read))),
    ]


async def test_what_came_by_a_key_before_it_was_bound_is_shown_under_its_account(
    client: AsyncClient, db: Db, cast: Cast, dora: Visitor
):
    key, other = await key_of(db, cast, "laptop"), await key_of(db, cast, "frank")
    await work(client, key, "parser")
    before = await names_shown(client, other)

    await dora.post("/ui/profile/key", key=key.key)
    after = {name: await names_shown(client, who) for name, who in {"dora": key, "frank": other}.items()}
    index = {
        name: (await client.get("/v1/context", params={"project": PROJECT, "format": "text"}, headers=who.headers)).text
        for name, who in {"dora": key, "frank": other}.items()
    }
    await work(client, key, "lexer")
    newest = (await act(client, other, "GET", f"/v1/observations?project={PROJECT}"))["observations"][0]

    assert before == ["laptop", "laptop", "laptop", {"laptop"}, ["laptop"], ["laptop"]]
    assert after["dora"] == after["frank"] == ["dora", "dora", "dora", {"dora"}, ["dora"], ["dora"]]
    assert "(by dora)" in index["frank"]
    assert "(by" not in index["dora"], "one's own memory is nobody else's"
    assert newest["actorId"] == "dora"
    page = await dora.get("/ui/observations/1")
    assert ("laptop" in page.text, "dora" in page.text) == (False, True)


async def test_a_name_that_another_key_has_stays_whose_it_is(client: AsyncClient, db: Db, cast: Cast, dora: Visitor):
    mine, shared = await key_of(db, cast, "build"), await key_of(db, cast, "build")
    await work(client, shared, "parser")

    await dora.post("/ui/profile/key", key=mine.key)

    (observation,) = (await act(client, mine, "GET", f"/v1/observations?project={PROJECT}"))["observations"]
    assert observation["actorId"] == "build"


# ---- the first key


@pytest.fixture
async def first(app: AsgiFrame, db: Db) -> tuple[str, str]:
    """The text of a fresh server's first key, and the path of the link that makes its first account."""
    made = await bootstrap(db, "home", None)
    assert made is not None
    operator = await find_operator(db)
    async with db.system() as conn:
        new = await invite(conn, operator, "owner", makes_operator=True)
    return made.text, f"/ui/join/{new.token}"


async def find_operator(db: Db) -> Principal:
    """Who runs the fresh server."""
    (team,) = await rows(db, "SELECT id FROM teams WHERE name = 'home'")
    return Principal(
        kind="operator", team_id=team["id"], project_id=None, key_id=None, actor_id="first start", scopes=frozenset({"*"})
    )


async def mine(client: AsyncClient, key: str) -> int:
    return (await client.get("/v1/personal-observations", headers={"X-Api-Key": key})).status_code


async def test_an_operator_binds_the_first_key_later_and_nobody_else_does(
    client: AsyncClient, app: AsgiFrame, db: Db, first: tuple[str, str]
):
    key, _ = first
    operator = await find_operator(db)
    people: dict[str, Visitor] = {}
    for name, runs_server in (("eve", False), ("alice", True)):
        user = await make_user(app, db, name, is_operator=runs_server)
        await join(db, user, operator.team_id)
        people[name] = await sign_in(app, user)

    refused = await people["eve"].post("/ui/profile/key", key=key)
    bound = await people["alice"].post("/ui/profile/key", key=key)

    assert "the name of another member" in refused.text
    assert "is yours" in bound.text
    assert await mine(client, key) == 200


async def test_the_first_key_of_another_team_is_no_operators_own(client: AsyncClient, app: AsgiFrame, db: Db):
    operator = Principal(
        kind="operator", team_id=new_id(), project_id=None, key_id=None, actor_id="first start", scopes=frozenset({"*"})
    )
    limit = KeyGrant(
        scopes=["*"], project_id=None, actor_id="first start", expires_at=None, requests_per_minute=None, events_per_month=None
    )
    async with db.system() as conn:
        team, made = await create(conn, operator, limit, name="b", metadata={})
    user = await make_user(app, db, "alice", is_operator=True)
    await join(db, user, team.id)
    alice = await sign_in(app, user)

    answered = await alice.post("/ui/profile/key", key=made.text)

    assert answered.status_code == 409
    assert await mine(client, made.text) == 403


# ---- names that keys had


async def test_nobody_joins_under_a_name_that_anothers_key_had(
    app: AsgiFrame, client: AsyncClient, db: Db, cast: Cast, dora: Visitor
):
    laptop = await key_of(db, cast, "laptop")
    await work(client, laptop, "parser")
    await dora.post("/ui/profile/key", key=laptop.key)
    async with db.system() as conn:
        new = await invite(conn, cast.alice.principal, "member")
    form = {"name": "Laptop", "password": PASSWORD}

    refused = await signed_out(app).client.post(f"/ui/join/{new.token}", data=form, headers={"Origin": ORIGIN})
    joined = await signed_out(app).client.post(f"/ui/join/{new.token}", data={**form, "name": "eve"}, headers={"Origin": ORIGIN})

    assert (refused.status_code, "was the name of another member" in refused.text) == (409, True)
    assert joined.status_code in (200, 303)


async def test_what_an_account_of_a_former_name_wrote_stays_theirs(
    client: AsyncClient, app: AsgiFrame, db: Db, cast: Cast, dora: Visitor
):
    laptop = await key_of(db, cast, "laptop")
    await dora.post("/ui/profile/key", key=laptop.key)
    user = await make_user(app, db, "laptop")  # in the team by another way than an invitation
    await join(db, user, cast.alice.team_id, "member")
    await work(client, await key_of(db, cast, "somebody"), "parser")
    await rows(db, "UPDATE observations SET actor_id = 'laptop'")

    (observation,) = (await act(client, laptop, "GET", f"/v1/observations?project={PROJECT}"))["observations"]

    assert observation["actorId"] == "laptop"


# ---- keys that somebody makes for somebody else


async def make_on_page(visitor: Visitor, **fields: Any) -> tuple[int, str]:
    """The status of the form, and the key that it showed."""
    page = await visitor.get("/ui/team/keys")
    once = re.search(r'name="once" value="([0-9a-f-]+)"', page.text)
    assert once is not None
    made = await visitor.post("/ui/team/keys", once=once[1], scopes="observations:read", **fields)
    found = re.search(r"cms_[0-9a-f]+_[0-9a-f]+", made.text)
    return made.status_code, found[0] if found else ""


@try_rows(
    ("fields", "status", "reads"),
    [
        ({"whose": "mine"}, 201, 200),
        ({"whose": "other"}, 201, 403),
        ({"whose": "other", "actor": "carol"}, 201, 403),
        ({}, 400, 0),
        ({"whose": "mine", "actor": "carol"}, 400, 0),
    ],
)
async def test_the_page_asks_for_whom_a_key_is(
    client: AsyncClient, app: AsgiFrame, db: Db, cast: Cast, fields: dict[str, str], status: int, reads: int
):
    user = await make_user(app, db, f"owner {sorted(fields.items())}"[:90])
    await join(db, user, cast.alice.team_id)
    owner = await sign_in(app, user)
    await owner.post("/ui/mine", text="Answer me in German.")

    answered, key = await make_on_page(owner, **fields)

    assert answered == status
    assert (await mine(client, key) if key else 0) == reads


async def test_a_member_makes_and_ends_a_key_of_a_machine_under_their_name(client: AsyncClient, dora: Visitor):
    status, key = await make_on_page(dora, whose="other")
    page = await dora.get("/ui/team/keys")
    key_id = (await client.get("/v1/keys/current", headers={"X-Api-Key": key})).json()["key"]["id"]
    bound = await dora.post("/ui/profile/key", key=key)
    ended = await dora.post(f"/ui/team/keys/{key_id}/revoke")

    assert (status, await mine(client, key)) == (201, 403)
    assert "made for somebody else" in bound.text
    assert 'name="actor"' not in page.text
    assert '<p><a href="/ui/team/keys">Keys</a></p>' in page.text
    assert "That cannot be taken back: a new key is made instead." in page.text
    assert "is revoked. That cannot be taken back: make a new key instead." in ended.text


async def test_a_key_for_others_is_nobodys_over_the_api_too(client: AsyncClient, db: Db, cast: Cast):
    ann, _ = await make_two(db, cast.alice.team_id)
    await remember(client, ann, "Answer me in German.")

    own, others = [
        (await act(client, ann, "POST", "/v1/keys", {"scopes": ["observations:read"], **more}, 201))["apiKey"]
        for more in ({}, {"personal": False})
    ]

    assert (await mine(client, own), await mine(client, others)) == (200, 403)
