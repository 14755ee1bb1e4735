"""Which project a call is about, where several things could say it."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from tests.conftest import Cast, bound_to
from tests.doors.mcp.tools import call, numbers, rpc
from tests.make import Make

STOCK = "github.com/acme/stock"
CONTEXT: dict[str, object] = {"name": "observation_context", "arguments": {}}


@pytest.fixture
async def fed(make: Make, cast: Cast, db: Db) -> tuple[int, int]:
    """The number of what is known of the wombat in orders, and of what is in stock."""
    stock = await bound_to(db, cast.alice, STOCK)
    return (
        (await make.observation(project=cast.alice.project, title="The wombat: wombat")).number,
        (await make.observation(project=stock.project, title="The wombat is counted")).number,
    )


async def in_stock(client: httpx.AsyncClient, cast: Cast, tool: str, **arguments: object) -> list[int]:
    """The numbers in the answer to a client that works in stock."""
    answered = await rpc(client, cast.alice, "tools/call", {"name": tool, "arguments": arguments}, x_cmserver_project=STOCK)
    return numbers(answered.json()["result"]["content"][0]["text"])


@pytest.mark.parametrize(
    ("tool", "arguments", "unset"),
    [
        ("observation_search", {"query": "wombat"}, "projectId"),
        ("observation_search", {"query": "wombat"}, "project"),
        ("observation_search", {"query": "wombat"}, "session"),
        ("observation_timeline", {"query": "wombat"}, "anchor"),
        ("observation_timeline", {"query": "wombat"}, "session"),
        ("observation_timeline", {"query": "wombat"}, "projectId"),
        ("observation_context", {}, "projectId"),
    ],
)
async def test_null_says_as_little_as_nothing(
    client: httpx.AsyncClient, cast: Cast, fed: tuple[int, int], tool: str, arguments: dict[str, object], unset: str
):
    """Some models send each argument that they are told of."""
    assert await in_stock(client, cast, tool, **arguments) == [fed[1]]
    assert await in_stock(client, cast, tool, **arguments, **{unset: None}) == [fed[1]]


async def test_a_context_of_more_projects_than_it_tells_is_refused_and_not_cut(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast
):
    app.dependencies.replace(msgspec.structs.replace(app.dependencies.get(Settings), mcp_aliases="claude-mem"))

    told = await call(client, cast.alice, "session_start_context", projects="a,b,c,d,e,f")

    assert told == ("Name at most 5 projects. ($.projects)", True)


@pytest.mark.parametrize("empty", ["github.com/acme/empty", "github.com/acme/stocks"])
async def test_what_is_said_of_a_project_without_anything_leads_on(
    client: httpx.AsyncClient, cast: Cast, fed: tuple[int, int], empty: str
):
    """Also when its name is near to that of another project."""
    nothing = await rpc(client, cast.alice, "tools/call", CONTEXT, x_cmserver_project=empty)
    everywhere, _ = await call(client, cast.alice, "observation_search", query="wombat", projectId="*")

    assert 'A search with "*"' in nothing.json()["result"]["content"][0]["text"]
    assert set(numbers(everywhere)) == set(fed)


async def test_a_search_that_finds_nothing_in_a_project_says_how_to_look_elsewhere(client: httpx.AsyncClient, cast: Cast):
    told = ('Nothing fits in this project. With projectId "*" all that this key may see is searched.', False)

    assert await call(client, cast.alice, "observation_search", query="wombat", projectId="orders") == told
    assert await call(client, cast.alice, "observation_search", query="wombat") == ("Nothing fits.", False)


async def test_a_header_that_no_project_can_be_called_is_refused_and_not_left_out(client: httpx.AsyncClient, cast: Cast):
    answered = await rpc(client, cast.alice, "ping", x_cmserver_project="x" * 600)

    assert answered.status_code == 400
    assert answered.json()["message"].startswith("X-Cmserver-Project: A project's name has 1 to ")
