"""What is read by its address, in both eras of the protocol: the same text as over REST, and nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
from mcp import Client, MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, TextResourceContents

from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast, Person, bound_to, mint
from tests.doors.mcp.tools import MODES, Mode, connected, rpc
from tests.make import Make
from tests.rows import rows

TEMPLATES = ["cmserver://observations/{number}", "cmserver://sessions/{id}/summary", "cmserver://projects/{project}/context"]
NOT_FOUND: Mapping[Mode, int] = {"auto": INVALID_PARAMS, "legacy": -32002}
NO_SUCH = ("There is no such", "Project not found")
OF_NOTHING = [
    "",
    "cmserver://",
    "cmserver://observations/",
    "cmserver://observations/1/2",
    "cmserver://observations/-1",
    "cmserver://observations/99999999999999999999",
    "cmserver://observations/%00",
    "cmserver://sessions/%00/summary",
    "cmserver://sessions//summary",
    "cmserver://sessions/%ff/summary",
    "cmserver://projects//context",
    "cmserver://projects/%00/context",
    "cmserver://projects/%zz/context",
    f"cmserver://projects/{'a' * 5_000}/context",
    f"cmserver://projects/{'a' * 100_000}/context",
    f"cmserver://sessions/{'a' * 5_000}/summary",
    "file:///etc/passwd",
    "cmserver://observations/1%27%3B--",
]


async def read(client: Client, uri: str) -> str:
    """The one text at that address."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert (content.uri, content.mime_type) == (uri, "text/plain")
    return content.text


async def refused(client: httpx.AsyncClient, person: Person, uri: str) -> dict[str, Any]:
    """How reading that is refused, in the older era."""
    answered = await rpc(client, person, "resources/read", {"uri": uri})
    return answered.json()["error"]


async def session_of(client: httpx.AsyncClient, person: Person, name: str = "s-1") -> dict[str, Any]:
    body = {"projectId": person.project.canonical_id, "externalSessionId": name, "contentSessionId": name}
    response = await client.post("/v1/sessions/start", json=body, headers=person.headers)
    return response.json()["session"]


async def summed_up(make: Make, person: Person, session: Mapping[str, Any], request: str) -> None:
    await make.observation(
        project=person.project,
        kind="summary",
        title=None,
        summary={"request": request},
        content=request,
        server_session_id=session["id"],
    )


@pytest.mark.parametrize("mode", MODES)
async def test_how_addresses_are_made_is_listed(app: AsgiFrame, cast: Cast, mode: Mode):
    async with connected(app, cast.alice, mode=mode) as client:
        listed = await client.list_resource_templates()

    assert [one.uri_template for one in listed.resource_templates] == TEMPLATES
    assert all(one.mime_type == "text/plain" and one.title and one.description for one in listed.resource_templates)
    assert (listed.ttl_ms, listed.cache_scope) == (0, "private")


@pytest.mark.parametrize("mode", MODES)
async def test_an_observation_is_read_as_over_rest_and_it_is_noted_who_read_it(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, make: Make, db: Db, mode: Mode
):
    await make.observation(project=cast.alice.project, title="The wombat is fed at noon", narrative="Not before.")
    plain = await client.get("/v1/observations/1", headers={**cast.alice.headers, "Accept": "text/plain"})
    before = await rows(db, "SELECT max(id) AS id FROM audit_log")

    async with connected(app, cast.bob, mode=mode) as agent:
        text = await read(agent, "cmserver://observations/1")

    assert "Not before." in text
    assert text == plain.text
    (noted,) = await rows(
        db, "SELECT actor_id, details FROM audit_log WHERE action = 'observations.served' AND id > %s", before[0]["id"]
    )
    assert (noted["actor_id"], noted["details"]) == ("bob", {"via": "batch", "numbers": [1]})


@pytest.mark.parametrize("mode", MODES)
async def test_the_newest_summary_of_a_session_is_read_by_our_id_and_by_the_agents(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, make: Make, db: Db, mode: Mode
):
    session = await session_of(client, cast.alice)
    await summed_up(make, cast.alice, session, "Feed the wombat")
    await summed_up(make, cast.alice, session, "Feed it again")

    async with connected(app, cast.alice, mode=mode) as agent:
        by_ours = await read(agent, f"cmserver://sessions/{session['id']}/summary")
        by_theirs = await read(agent, "cmserver://sessions/s-1/summary")

    assert "Request: Feed it again\n" in by_ours
    assert "Feed the wombat" not in by_ours
    assert by_theirs == by_ours
    noted = await rows(db, "SELECT details FROM audit_log WHERE action = 'observations.served'")
    assert [one["details"] for one in noted] == [{"via": "get", "numbers": [2]}] * 2


@pytest.mark.parametrize("mode", MODES)
async def test_the_context_of_a_project_is_the_one_that_rest_gives(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, make: Make, mode: Mode
):
    await make.observation(project=cast.alice.project, title="The wombat is fed at noon")
    asked = {"project": cast.alice.project.canonical_id, "format": "text"}
    plain = await client.get("/v1/context", params=asked, headers=cast.alice.headers)

    async with connected(app, cast.alice, mode=mode) as agent:
        encoded = await read(agent, "cmserver://projects/github.com%2Facme%2Forders/context")
        bare = await read(agent, "cmserver://projects/github.com/acme/orders/context")
        called = await read(agent, "cmserver://projects/orders/context")

    assert "The wombat is fed at noon" in encoded
    assert encoded == bare == called
    *same, how = encoded.splitlines()[:-1]
    assert same == plain.text.splitlines()[:-2]
    assert how == "One is read whole with the MCP tool observation_get, others are found with observation_search."


@pytest.mark.parametrize("name", ["100% a/b", "füße & mehr", "/home/me/my project", "a?b#c", "a%2Fb", "a+b", "{x}"])
async def test_a_project_of_any_name_is_listed_under_an_address_at_which_it_is(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db, name: str
):
    async with db.tenant(cast.alice.team_id) as conn:
        project, _ = await make_project(conn, cast.alice.principal, name)
    await make.observation(project=project, title="The wombat is fed at noon")

    listed = (await rpc(client, cast.alice, "resources/list")).json()["result"]["resources"]
    read = await rpc(client, cast.alice, "resources/read", {"uri": listed[0]["uri"]})

    assert listed[0]["uri"] == f"cmserver://projects/{quote(name, safe='')}/context"
    assert listed[0]["name"] == name
    assert "The wombat is fed at noon" in read.json()["result"]["contents"][0]["text"]


@pytest.mark.parametrize("mode", MODES)
async def test_the_contexts_of_the_teams_projects_are_listed_page_by_page(app: AsgiFrame, cast: Cast, db: Db, mode: Mode):
    names = [f"github.com/acme/p{number:03}" for number in range(60)]
    async with db.tenant(cast.alice.team_id) as conn:
        for name in names:
            await make_project(conn, cast.alice.principal, name)

    async with connected(app, cast.alice, mode=mode) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)

    assert len(first.resources) == 50
    assert second.next_cursor is None
    listed = [one.name for one in [*first.resources, *second.resources]]
    assert sorted(listed) == sorted([*names, cast.alice.project.canonical_id])
    assert (first.ttl_ms, first.cache_scope) == (0, "private")


async def test_a_cursor_that_is_none_is_refused(client: httpx.AsyncClient, cast: Cast):
    answered = await rpc(client, cast.alice, "resources/list", {"cursor": "nonsense"})

    error = answered.json()["error"]
    assert error["code"] == INVALID_PARAMS
    assert error["message"].startswith("This is not a cursor of this list.")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["observation", "summary", "context"])
async def test_what_is_another_teams_is_refused_as_what_does_not_exist(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, make: Make, db: Db, mode: Mode, what: str
):
    session = await session_of(client, cast.alice)
    await summed_up(make, cast.alice, session, "Feed the wombat")
    async with db.tenant(cast.alice.team_id) as conn:
        await make_project(conn, cast.alice.principal, "secret")
    theirs, nobodys = {
        "observation": ("cmserver://observations/1", "cmserver://observations/999"),
        "summary": (f"cmserver://sessions/{session['id']}/summary", f"cmserver://sessions/{uuid4()}/summary"),
        "context": ("cmserver://projects/secret/context", "cmserver://projects/nothing/context"),
    }[what]

    async with connected(app, cast.charlie, mode=mode) as stranger:
        with pytest.raises(MCPError) as of_theirs:
            await stranger.read_resource(theirs)
        with pytest.raises(MCPError) as of_nobodys:
            await stranger.read_resource(nobodys)

    assert of_theirs.value.error.code == of_nobodys.value.error.code == NOT_FOUND[mode]
    assert of_theirs.value.error.message == of_nobodys.value.error.message
    assert of_theirs.value.error.message.startswith(NO_SUCH)
    assert of_theirs.value.error.data == {"uri": theirs}


async def test_a_key_for_one_project_reads_and_lists_nothing_of_another(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    bound = await bound_to(db, cast.alice, "billing")
    session = await session_of(client, cast.alice)
    await summed_up(make, cast.alice, session, "Feed the wombat")

    listed = (await rpc(client, bound, "resources/list")).json()["result"]["resources"]
    errors = [
        await refused(client, bound, uri)
        for uri in (
            "cmserver://observations/1",
            f"cmserver://sessions/{session['id']}/summary",
            "cmserver://projects/orders/context",
        )
    ]

    assert [one["name"] for one in listed] == ["billing"]
    assert all(error["code"] == -32002 and error["message"].startswith(NO_SUCH) for error in errors)


async def test_a_session_without_a_summary_says_so(client: httpx.AsyncClient, cast: Cast, make: Make):
    session = await session_of(client, cast.alice)
    await make.observation(project=cast.alice.project, server_session_id=session["id"])

    error = await refused(client, cast.alice, f"cmserver://sessions/{session['id']}/summary")

    assert (error["code"], error["message"]) == (-32002, "This session has no summary.")


async def test_a_project_of_which_nothing_is_known_says_so(client: httpx.AsyncClient, cast: Cast):
    answered = await rpc(client, cast.alice, "resources/read", {"uri": "cmserver://projects/orders/context"})

    (content,) = answered.json()["result"]["contents"]
    assert "nothing has been recorded yet" in content["text"]


async def test_an_address_of_nothing_is_refused_with_a_sentence(client: httpx.AsyncClient, cast: Cast):
    errors = {uri: await refused(client, cast.alice, uri) for uri in OF_NOTHING}

    for uri, error in errors.items():
        assert error["code"] in {INVALID_PARAMS, -32002}, uri
        assert error["message"].endswith((".", ")")), uri


async def test_a_key_that_may_not_read_is_listed_nothing_and_refused_and_that_is_noted(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db
):
    await make.observation(project=cast.alice.project)
    principal, text = await mint(db, cast.alice.team_id, "writer", scopes=["events:write"])
    writer = Person(principal=principal, key=text, project=cast.alice.project)

    resources = (await rpc(client, writer, "resources/list")).json()["result"]["resources"]
    templates = (await rpc(client, writer, "resources/templates/list")).json()["result"]["resourceTemplates"]
    error = await refused(client, writer, "cmserver://observations/1")

    assert (resources, templates) == ([], [])
    assert error["code"] == INVALID_REQUEST
    assert "observations:read" in error["message"]
    (noted,) = await rows(db, "SELECT actor_id, details FROM audit_log WHERE action = 'access.denied'")
    assert (noted["actor_id"], noted["details"]["scope"]) == ("writer", "observations:read")
