"""How much of a query is read: our own doors refuse more, those of other systems cut it and go on."""

from __future__ import annotations

import json

import httpx
import msgspec
import pytest

from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.base.text import PROMPT_MOST, QUERY_MOST
from cmserver.recall.search import search
from cmserver.recall.search.model import Filters, SearchRequest
from tests.conftest import Cast
from tests.doors.mcp.tools import call
from tests.make import Make
from tests.table import Failures

LONGEST = ("queue " * QUERY_MOST)[:QUERY_MOST]
TOO_LONG = LONGEST + "x"
ENDLESS = "queue " * 9_000


@pytest.fixture
async def lengths(monkeypatch: pytest.MonkeyPatch, make: Make, cast: Cast) -> list[int]:
    """Of each query that is read on the event loop, in which something is found."""
    await make.observation(project=cast.alice.project, title="The queue of orders")
    seen: list[int] = []
    find_time_cue = search.find_time_cue

    def look(query: str, *arguments: object) -> object:
        seen.append(len(query))
        return find_time_cue(query, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(search, "find_time_cue", look)
    return seen


@pytest.fixture
def client(app: AsgiFrame, client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Of a server that knows all names of tools."""
    app.dependencies.replace(msgspec.structs.replace(app.dependencies.get(Settings), mcp_aliases="all"))
    return client


async def test_our_own_doors_take_a_query_of_the_greatest_length_and_refuse_a_longer_one(
    client: httpx.AsyncClient, cast: Cast, lengths: list[int]
):
    failures, project = Failures(), str(cast.alice.project.id)
    for path in ("/v1/search", "/v1/context", "/v1/timeline"):
        with failures.of(path):
            body = {"projectId": project}
            taken = await client.post(path, json={**body, "query": LONGEST}, headers=cast.alice.headers)
            refused = await client.post(path, json={**body, "query": TOO_LONG}, headers=cast.alice.headers)
            assert (taken.status_code, refused.status_code) == (200, 400)
            assert [issue["path"] for issue in refused.json()["issues"]] == ["$.query"]
    for tool in ("observation_search", "observation_context", "observation_timeline", "memory_search"):
        with failures.of(tool):
            _, is_refused = await call(client, cast.alice, tool, query=LONGEST, projectId=project)
            assert not is_refused
            text, is_refused = await call(client, cast.alice, tool, query=TOO_LONG, projectId=project)
            assert is_refused
            assert "$.query" in text
    failures.report()
    assert lengths
    assert set(lengths) == {QUERY_MOST}


async def test_doors_of_other_systems_cut_a_longer_query_and_go_on(client: httpx.AsyncClient, cast: Cast, lengths: list[int]):
    failures = Failures()
    for method, path, name in (
        ("GET", "/api/search", "query"),
        ("GET", "/api/search/observations", "query"),
        ("GET", "/api/timeline/by-query", "query"),
        ("GET", "/entities/by-type/file", "q"),
        ("GET", "/episodes/search", "q"),
        ("POST", "/api/v1/memories/search", "query"),
        ("POST", "/api/v1/memories/recall", "query"),
        ("POST", "/api/context/semantic", "q"),
    ):
        with failures.of(path):
            sent = {"params": {name: ENDLESS}} if method == "GET" else {"json": {name: ENDLESS, "project": "x"}}
            answer = await client.request(method, path, headers=cast.alice.headers, **sent)  # pyright: ignore[reportArgumentType]
            assert answer.status_code == 200
    for tool in ("search", "timeline", "search_memories", "recall_memories"):
        with failures.of(tool):
            _, is_refused = await call(client, cast.alice, tool, query=ENDLESS)
            assert not is_refused
    failures.report()
    assert len(lengths) >= 8
    assert max(lengths) <= QUERY_MOST


async def test_a_prompt_is_searched_by_its_beginning(client: httpx.AsyncClient, cast: Cast, lengths: list[int]):
    """A hook sends what the user pasted; nobody could shorten it."""
    payload = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/home/dev/shop", "prompt": ENDLESS}
    headers = {**cast.alice.headers, "Content-Type": "application/json"}

    answer = await client.post("/v1/hooks/claude-code", content=json.dumps(payload), headers=headers)

    assert answer.status_code in (200, 202)
    assert all(length <= PROMPT_MOST for length in lengths)


def test_whatever_door_a_query_came_by_its_readers_see_no_more_than_of_a_prompt():
    assert len(SearchRequest(query=ENDLESS, project_ids=None, filters=Filters()).query) == PROMPT_MOST
