"""The one prompt: the question, what the search tool finds for it, and how to go on."""

from __future__ import annotations

import httpx
import pytest
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, TextContent

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast, Person, bound_to, mint
from tests.doors.mcp.tools import MODES, Mode, call, connected, rpc
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows

PROMPT = "what_do_we_know"


async def asked(client: httpx.AsyncClient, person: Person, /, *, headers: dict[str, str] | None = None, **arguments: str) -> str:
    """What the prompt says."""
    answered = await rpc(client, person, "prompts/get", {"name": PROMPT, "arguments": arguments}, **(headers or {}))
    (message,) = answered.json()["result"]["messages"]
    return message["content"]["text"]


@pytest.mark.parametrize("mode", MODES)
async def test_the_prompt_asks_with_the_lines_that_the_search_finds(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, make: Make, db: Db, mode: Mode
):
    await make.observation(project=cast.alice.project, title="The wombat is fed at noon", narrative="Not before.")
    lines, _ = await call(client, cast.alice, "observation_search", query="wombat")

    async with connected(app, cast.bob, mode=mode) as agent:
        (listed,) = (await agent.list_prompts()).prompts
        got = await agent.get_prompt(listed.name, {"topic": "wombat"})

    assert listed.name == PROMPT
    assert [(one.name, one.required) for one in listed.arguments or ()] == [("topic", True), ("project", False)]
    (message,) = got.messages
    assert message.role == "user"
    assert isinstance(message.content, TextContent)
    assert message.content.text.startswith("What do we know about wombat?\n")
    assert lines in message.content.text
    assert "<cmserver-context>\n#1 " in lines
    assert "Not before." not in message.content.text
    assert "observation_get" in message.content.text
    assert "#number" in message.content.text
    noted = await rows(db, "SELECT details FROM audit_log WHERE action = 'observations.served' AND actor_id = 'bob'")
    assert [one["details"] for one in noted] == [{"via": "search", "numbers": [1]}]


async def test_it_asks_in_the_project_that_is_named_or_else_where_the_client_works(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db
):
    billing = await bound_to(db, cast.alice, "billing")
    await make.observation(project=cast.alice.project, title="The wombat of orders")
    await make.observation(project=billing.project, title="The wombat of billing")
    here = {"x_cmserver_project": "orders"}

    named = await asked(client, cast.alice, topic="wombat", project="billing", headers=here)
    own = await asked(client, cast.alice, topic="wombat", headers=here)
    every = await asked(client, cast.alice, topic="wombat", project="*", headers=here)
    empty = await asked(client, cast.alice, topic="wombat", project="", headers=here)
    bound = await asked(client, billing, topic="wombat")

    def found(text: str) -> set[str]:
        return {project for project in ("orders", "billing") if f"wombat of {project}" in text}

    assert [found(text) for text in (named, own, every, empty, bound)] == [
        {"billing"},
        {"orders"},
        {"orders", "billing"},
        {"orders"},
        {"billing"},
    ]


async def test_what_another_team_knows_is_not_found(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="The wombat is fed at noon")

    text = await asked(client, cast.charlie, topic="wombat")

    assert "noon" not in text
    assert "Nothing fits." in text


@try_rows(
    ("name", "arguments", "sentence"),
    [
        (PROMPT, {}, "topic"),
        (PROMPT, {"topic": ""}, "topic"),
        (PROMPT, {"topic": "a\0b"}, "topic"),
        (PROMPT, {"topic": "wombat", "projekt": "orders"}, "projekt"),
        (PROMPT, {"topic": "wombat", "project": "nothing"}, "Project not found."),
        (PROMPT, {"topic": "wombat", "project": "p" * 501}, "project"),
        ("what", {"topic": "wombat"}, "There is no prompt 'what'. The only one is what_do_we_know."),
    ],
    ids=["none", "empty", "nul", "misspelt", "no-project", "long-project", "no-prompt"],
)
async def test_what_is_wrong_is_said(client: httpx.AsyncClient, cast: Cast, name: str, arguments: dict[str, str], sentence: str):
    answered = await rpc(client, cast.alice, "prompts/get", {"name": name, "arguments": arguments})

    error = answered.json()["error"]
    assert error["code"] == INVALID_PARAMS
    assert sentence in error["message"]


async def test_a_key_that_may_not_search_is_listed_no_prompt_and_refused(client: httpx.AsyncClient, cast: Cast, db: Db):
    principal, text = await mint(db, cast.alice.team_id, "writer", scopes=["events:write"])
    writer = Person(principal=principal, key=text, project=cast.alice.project)

    listed = (await rpc(client, writer, "prompts/list")).json()["result"]["prompts"]
    error = (await rpc(client, writer, "prompts/get", {"name": PROMPT, "arguments": {"topic": "x"}})).json()["error"]

    assert listed == []
    assert error["code"] == INVALID_REQUEST
    assert "observations:read" in error["message"]
    (noted,) = await rows(db, "SELECT details FROM audit_log WHERE action = 'access.denied'")
    assert noted["details"]["scope"] == "observations:read"
