"""Further names for tools: those of claude-mem, and memory_*."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.doors.mcp.aliases import Aliases
from cmserver.observations.model import Observation
from tests.conftest import Cast, bound_to
from tests.doors.mcp.tools import call, rpc
from tests.make import Make
from tests.table import try_rows

NATIVE = [
    "observation_search",
    "observation_timeline",
    "observation_get",
    "observation_why",
    "observation_context",
    "observation_add",
    "observation_correct",
    "observation_record_event",
    "observation_generation_status",
]
MEMORY = [name.replace("observation_", "memory_") for name in NATIVE]
CLAUDE_MEM = ["search", "timeline", "get_observations", "get_tool_uses", "session_start_context"]
CONTEXTIFY = [
    "store_memory",
    "recall_memories",
    "search_memories",
    "get_memory",
    "update_memory",
    "delete_memory",
    "create_relationship",
    "get_related_memories",
    "get_context",
    "promote_memory",
    "consolidate_memories",
    "find_similar",
    "suggest_consolidations",
]


@pytest.fixture
def client(app: AsgiFrame, client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Of a server that knows all names."""
    app.dependencies.replace(msgspec.structs.replace(app.dependencies.get(Settings), mcp_aliases="all"))
    return client


@pytest.fixture
async def history(make: Make, cast: Cast) -> list[Observation]:
    """Three about the wombat, in this order, and a summary."""
    project = cast.alice.project
    return [
        await make.observation(project=project, title="The wombat is fed", type="feature"),
        await make.observation(project=project, title="The wombat eats the fence, wombat", type="bugfix"),
        await make.observation(project=project, title="The wombat sleeps", type="feature"),
        await make.observation(project=project, title="All about the wombat", kind="summary"),
    ]


def numbers(text: str) -> list[int]:
    """Of the lines, in their order."""
    return [int(line.removeprefix("→ ")[1:].split()[0]) for line in text.splitlines() if line.removeprefix("→ ").startswith("#")]


@pytest.mark.parametrize(
    ("aliases", "names"),
    [
        ("none", NATIVE),
        ("claude-mem", [*NATIVE, *CLAUDE_MEM]),
        ("memory", [*NATIVE, *MEMORY]),
        ("contextify", [*NATIVE, *CONTEXTIFY]),
        ("all", [*NATIVE, *CLAUDE_MEM, *MEMORY, *CONTEXTIFY]),
    ],
)
async def test_the_setting_says_which_names_there_are(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, aliases: Aliases, names: list[str]
):
    app.dependencies.replace(msgspec.structs.replace(app.dependencies.get(Settings), mcp_aliases=aliases))

    listed = await rpc(client, cast.alice, "tools/list")

    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == names


async def test_a_name_that_was_not_switched_on_is_no_tool(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast):
    app.dependencies.replace(msgspec.structs.replace(app.dependencies.get(Settings), mcp_aliases="claude-mem"))

    answered = await rpc(client, cast.alice, "tools/call", {"name": "memory_get", "arguments": {"ids": [1]}})

    assert answered.json()["error"]["message"] == "There is no tool 'memory_get'. tools/list names those of this key."


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search", {"query": "wombat", "projectId": "*"}),
        ("timeline", {"anchor": 2}),
        ("get", {"ids": [1, 3, 99]}),
        ("context", {"projectId": "github.com/acme/orders"}),
        ("add", {"projectId": "github.com/acme/orders"}),
        ("generation_status", {"jobId": "x"}),
    ],
)
async def test_memory_names_do_what_the_native_ones_do(
    client: httpx.AsyncClient, cast: Cast, name: str, arguments: dict[str, object]
):
    native, alias = await asyncio.gather(
        call(client, cast.alice, f"observation_{name}", **arguments), call(client, cast.alice, f"memory_{name}", **arguments)
    )

    assert alias == native


@pytest.mark.usefixtures("history")
@try_rows(
    ("arguments", "found"),
    [
        ({}, {1, 2, 3, 4}),
        ({"type": "observations"}, {1, 2, 3}),
        ({"type": "sessions"}, {4}),
        ({"type": "prompts"}, set[int]()),
        ({"type": "bugfix"}, {2}),
        ({"obs_type": "bugfix, feature"}, {1, 2, 3}),
        ({"type": "observations", "obs_type": "feature"}, {1, 3}),
        ({"dateStart": "2100-01-01"}, set[int]()),
        ({"dateEnd": "2001-01-01"}, set[int]()),
        ({"dateStart": "2001-01-01", "dateEnd": "2100-01-01T00:00:00Z"}, {1, 2, 3, 4}),
        ({"project": "*"}, {1, 2, 3, 4}),
    ],
)
async def test_search_takes_the_filters_of_claude_mem(
    client: httpx.AsyncClient, cast: Cast, arguments: dict[str, object], found: set[int]
):
    text, is_error = await call(
        client, cast.alice, "search", **{"query": "wombat", "project": "github.com/acme/orders", **arguments}
    )

    assert not is_error
    assert set(numbers(text)) == found


@pytest.mark.usefixtures("history")
async def test_search_goes_on_by_offset_and_sorts_by_date(client: httpx.AsyncClient, cast: Cast):
    whole, _ = await call(client, cast.alice, "search", query="wombat", limit=4)
    parts = [(await call(client, cast.alice, "search", query="wombat", limit=2, offset=offset))[0] for offset in (0, 2)]
    newest, _ = await call(client, cast.alice, "search", query="wombat", orderBy="date_desc")
    oldest, _ = await call(client, cast.alice, "search", query="wombat", orderBy="date_asc")

    assert numbers(parts[0]) + numbers(parts[1]) == numbers(whole)
    assert parts[0].endswith(" Next page: offset 2.")
    assert "2 of 4." in parts[1]
    assert "Next page" not in parts[1]
    assert (numbers(newest), numbers(oldest)) == ([4, 3, 2, 1], [1, 2, 3, 4])


@try_rows(
    ("name", "arguments", "told"),
    [
        ("search", {}, "Missing field at $.query."),
        (
            "search",
            {"query": "x", "limit": 60, "offset": 60},
            "`offset` and `limit` reach no further than the 100th hit: ask more narrowly. ($.offset)",
        ),
        (
            "search",
            {"query": "x", "dateStart": "yesterday"},
            "($.dateStart)",
        ),
        ("search", {"query": "x", "obs_type": "platypus"}, "security_alert, security_note, sensitive. ($.obs_type)"),
        ("get_observations", {"ids": []}, "At least 1 item is needed at $.ids."),
        (
            "timeline",
            {},
            "($.anchor)",
        ),
        (
            "session_start_context",
            {},
            "Name a project, by its id or its canonical id (github.com/user/repo, a name, a path). ($.project)",
        ),
    ],
    ids=["query", "far", "time", "type", "ids", "anchor", "project"],
)
async def test_what_cannot_be_meant_is_refused_with_a_sentence(
    client: httpx.AsyncClient, cast: Cast, name: str, arguments: dict[str, object], told: str
):
    text, is_error = await call(client, cast.alice, name, **arguments)

    assert is_error
    assert text.endswith(told)


async def test_the_last_hit_that_offset_reaches_is_the_last(client: httpx.AsyncClient, cast: Cast, make: Make):
    for each in range(103):
        await make.observation(project=cast.alice.project, title=f"The wombat's day {each}")

    near, _ = await call(client, cast.alice, "search", query="wombat", limit=2, offset=97)
    far, _ = await call(client, cast.alice, "search", query="wombat", limit=2, offset=98)

    assert near.endswith("Next page: offset 99.")
    assert "Next page" not in far


async def test_timeline_and_get_observations_are_what_the_native_ones_are(
    client: httpx.AsyncClient, cast: Cast, history: list[Observation]
):
    around, _ = await call(client, cast.alice, "timeline", anchor=history[1].number, depth_before=1, depth_after=1)
    native, _ = await call(client, cast.alice, "observation_timeline", anchor=history[1].number, before=1, after=1)
    got, _ = await call(client, cast.alice, "get_observations", ids=["#3", 1])

    assert around == native
    assert numbers(around) == [1, 2, 3]
    assert numbers(got) == [3, 1]


@pytest.mark.usefixtures("history")
async def test_the_context_is_of_one_project_or_of_several(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    other = await bound_to(db, cast.alice, "github.com/acme/stock")
    await make.observation(project=other.project, title="The stock is counted")

    one, _ = await call(client, cast.alice, "session_start_context", project="github.com/acme/stock")
    both, _ = await call(client, cast.alice, "session_start_context", projects="github.com/acme/stock,github.com/acme/orders")

    assert "The stock is counted" in one
    assert "wombat" not in one
    assert "The stock is counted" in both
    assert "The wombat sleeps" in both


async def test_several_projects_share_what_one_would_have(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    other = await bound_to(db, cast.alice, "github.com/acme/stock")
    for project in (cast.alice.project, other.project):
        for each in range(60):
            await make.observation(project=project, title=f"Chapter {each}: {'of the long life of a wombat ' * 5}")

    one, _ = await call(client, cast.alice, "session_start_context", project="github.com/acme/stock")
    both, _ = await call(client, cast.alice, "session_start_context", projects="github.com/acme/stock,github.com/acme/orders")

    assert len(both) < 1.2 * len(one)
