"""What is a person's alone in search, in the tools of MCP, and on the profile page."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.conftest import Cast, Person, mint
from tests.doors.mcp.tools import call
from tests.doors.web.visitor import Visitor, join, make_user, sign_in
from tests.personal.people import make_account, make_key, make_two
from tests.personal.test_personal import LIST, act, remember, texts
from tests.personal.test_yours import write

Json = dict[str, Any]


@pytest.fixture
async def two(db: Db, cast: Cast) -> tuple[Person, Person]:
    """Ann and Ben of Alice's team."""
    return await make_two(db, cast.alice.team_id)


async def test_search_shows_three_of_ones_own_behind_the_teams(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    await write(client, ben, "Answers of the parser in German")
    for number in range(4):
        await remember(client, ann, f"Answer me in German, please, {'really ' * number}.")
    await remember(client, ann, "Never call me before noon.")
    query = {"query": "answer in German", "projectId": "orders"}

    found = {who.principal.actor_id: await act(client, who, "POST", "/v1/search", query) for who in two}
    filtered = await act(client, ann, "POST", "/v1/search", {**query, "types": ["decision"]})
    text = await client.post("/v1/search", json=query, headers={**ann.headers, "Accept": "text/plain"})

    assert [row["name"] for row in found["ann"].pop("personal")] == ["m4", "m3", "m2"]
    assert found["ben"].pop("personal") == filtered["personal"] == []
    for answered in found.values():
        answered.pop("requestId", None)
    assert found["ann"] == found["ben"]
    assert text.text.splitlines()[1].startswith("#1 ")
    assert text.text.splitlines()[2].startswith("m4 ")


async def test_a_model_adds_reads_and_finds_what_is_its_persons(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    added, _ = await call(client, ann, "observation_add", narrative="Answer me in German.", type="decision", scope="user")
    read, _ = await call(client, ann, "observation_get", ids=["m1", "#m1", "m9"])
    found, _ = await call(client, ann, "observation_search", query="answer in German", projectId="orders")
    others, _ = await call(client, ben, "observation_get", ids=["m1"])

    assert "Stored:\n" in added
    assert "m1 " in added
    assert read.count("Answer me in German.") == 2  # its line, and its text
    assert "There is no observation m9." in read
    assert "m1 " in found
    assert others == "There is no observation m1."


async def test_an_agent_reads_one_of_its_persons_own_as_text(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    await remember(client, ann, "Answer me in German.")

    told, other = [await client.get(f"{LIST}/m1", headers={**who.headers, "Accept": "text/plain"}) for who in (ann, ben)]

    assert told.headers["content-type"].startswith("text/plain")
    assert told.text.splitlines()[1].startswith("m1 ")
    assert "  Answer me in German." in told.text
    assert other.status_code == 404


async def test_several_projects_at_once_tell_of_what_is_ones_own_once_at_the_end(
    app: AsgiFrame, client: AsyncClient, two: tuple[Person, Person]
):
    app.dependencies.replace(msgspec.structs.replace(app.dependencies.get(Settings), mcp_aliases="claude-mem"))
    ann, _ = two
    await make_project_of(client, ann, "github.com/acme/ledger")
    await write(client, ann, "The queue retries")
    await remember(client, ann, "Answer me in German.")

    told, _ = await call(client, ann, "session_start_context", projects="github.com/acme/orders,github.com/acme/ledger")

    assert told.count("Answer me in German.") == 1
    assert told.index("The queue retries") < told.index("Answer me in German.")


async def make_project_of(client: AsyncClient, who: Person, name: str) -> None:
    await act(client, who, "POST", "/v1/projects", {"canonicalId": name}, 201)


# ---- a key of before


@pytest.fixture
async def dora(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    """A member of Alice's team, signed in."""
    user = await make_user(app, db, "dora")
    await join(db, user, cast.alice.team_id, "member")
    return await sign_in(app, user)


async def key_of(db: Db, cast: Cast, actor: str) -> Person:
    principal, text = await mint(db, cast.alice.team_id, actor, scopes=["memories:read", "memories:write"])
    return Person(principal=principal, key=text, project=cast.alice.project)


async def test_a_key_of_before_is_bound_once_by_its_person(client: AsyncClient, app: AsgiFrame, db: Db, cast: Cast, dora: Visitor):
    key = await key_of(db, cast, "dora")
    await act(client, key, "GET", LIST, status=403)

    bound = await dora.post("/ui/profile/key", key=key.key)
    again = await dora.post("/ui/profile/key", key=key.key)
    await remember(client, key, "Answer me in German.")

    assert "is yours" in bound.text
    assert "belongs to a person already" in again.text
    assert await texts(client, key) == ["Answer me in German."]


async def test_what_may_not_be_bound(client: AsyncClient, app: AsgiFrame, db: Db, cast: Cast, dora: Visitor):
    user = await make_user(app, db, "emil")
    await join(db, user, cast.alice.team_id, "member")
    rotated = await key_of(db, cast, "dora")
    successor = (await act(client, cast.alice, "POST", f"/v1/keys/{rotated.principal.key_id}/rotate", {}, 201))["apiKey"]
    revoked = await key_of(db, cast, "dora")
    await act(client, cast.alice, "DELETE", f"/v1/keys/{revoked.principal.key_id}")
    emils = await key_of(db, cast, "Emil")

    ann = await make_key(db, await make_account(db, cast.alice.team_id, "ann"))
    made_by_ann = (await act(client, ann, "POST", "/v1/keys", {"scopes": ["memories:read"], "actorId": "dora"}, 201))["apiKey"]

    tried = {
        "made for somebody else": [made_by_ann],
        "was rotated": [rotated.key, successor],
        "no working key": [revoked.key, cast.charlie.key, "cms_nonsense", f"{emils.key}0"],
        "the name of another member": [emils.key],
    }

    for said, keys in tried.items():
        for key in keys:
            assert said in (await dora.post("/ui/profile/key", key=key)).text, said
