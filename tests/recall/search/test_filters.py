"""Each filter leaves what it should, alone and with another one, whether words or meaning have found it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import combinations
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import epoch_ms
from cmserver.embeddings.model import QueryVector
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.observations.model import Observation
from cmserver.recall.search.searcher import Searcher
from tests.conftest import Cast, bound_to
from tests.doors.claude_mem.worker import prompt, session
from tests.make import Make
from tests.recall.search.tools import NOON, Vectors, post, post_search
from tests.table import try_rows

FILTERS: dict[str, tuple[dict[str, object], set[int]]] = {
    "observations": ({"kinds": ["observation"]}, {1, 2, 4, 6}),
    "summaries": ({"kinds": ["summary"]}, {3}),
    "by hand and summaries": ({"kinds": ["manual", "summary"]}, {3, 5}),
    "type": ({"types": ["bugfix"]}, {1}),  # a summary has no type of its own
    "types": ({"types": ["bugfix", "decision"]}, {1, 2}),
    "concept": ({"concepts": ["GOTCHA"]}, {2, 4}),
    "concepts": ({"concepts": ["how-it-works", "gotcha"]}, {1, 2, 4}),
    "file": ({"files": ["src/a.py"]}, {1, 2}),
    "part of a file": ({"files": ["a.py"]}, set()),
    "prefix": ({"filePrefix": "src/"}, {1, 2, 4}),
    "whole prefix": ({"filePrefix": "docs/%"}, set()),
    "agent": ({"agents": ["codex"]}, {4}),
    "agents": ({"agents": ["Claude-Code", "codex"]}, {1, 3, 4}),
    "since": ({"since": epoch_ms(NOON + timedelta(hours=3))}, {3, 4, 5, 6}),
    "until": ({"until": epoch_ms(NOON + timedelta(hours=3))}, {1, 2}),
    "since in words": ({"since": "2026-03-05T15:00"}, {3, 4, 5, 6}),
    "since and until": ({"since": epoch_ms(NOON + timedelta(hours=2)), "until": epoch_ms(NOON + timedelta(hours=4))}, {2, 3}),
    "importance": ({"minImportance": 0.8}, {5}),
    "phrase": ({"phrase": '"wombat two"'}, {2}),
    "minus": ({"phrase": "-two"}, {1, 3, 4, 5, 6}),
}


@pytest.fixture
async def zoo(client: httpx.AsyncClient, cast: Cast, make: Make) -> list[Observation]:
    """Six observations that differ in all that is filtered by."""
    claude = await session(client, cast.alice, "s-1", platform="claude-code")
    codex = await session(client, cast.alice, "s-2", platform="codex")
    rows: list[dict[str, Any]] = [
        {"type": "bugfix", "files_modified": ["src/a.py"], "concepts": ["how-it-works"], "server_session_id": claude},
        {"type": "decision", "files_read": ["src/a.py", "docs/x.md"], "concepts": ["gotcha"]},
        {"kind": "summary", "type": "bugfix", "server_session_id": claude},
        {"files_read": ["src/b.py"], "concepts": ["Gotcha"], "server_session_id": codex},
        {"kind": "manual", "importance": 0.8},
        {},
    ]
    words = ("one", "two", "three", "four", "five", "six")
    return [
        await make.observation(project=cast.alice.project, title=f"wombat {word}", created_at=NOON + timedelta(hours=hour), **row)
        for hour, (word, row) in enumerate(zip(words, rows, strict=True), 1)
    ]


class FakeEmbedder(QueryEmbedder):
    """A meaning that stands at one place whatever is asked."""

    def __init__(self, sought: QueryVector) -> None:
        self._sought = sought

    async def embed(self, query: str, *, team_id: UUID | None = None) -> QueryVector:
        return self._sought


async def search_filtered(client: httpx.AsyncClient, cast: Cast, word: str, *filters: Mapping[str, object]) -> set[int]:
    fields: dict[str, object] = {}
    for filter_ in filters:
        fields |= filter_
    phrase = " ".join(str(filter_["phrase"]) for filter_ in filters if "phrase" in filter_)
    fields.pop("phrase", None)
    answer = await post_search(client, cast.alice, f"{word} {phrase}", **fields)
    return set[int]() if answer["ignoresQuotes"] else {hit["number"] for hit in answer["observations"]}


async def every_filter(client: httpx.AsyncClient, cast: Cast, word: str) -> list[str]:
    """Of each, and of each two that speak of different things, what is wrong."""
    wrong: list[str] = []
    for name, (fields, expected) in FILTERS.items():
        if (seen := await search_filtered(client, cast, word, fields)) != expected:
            wrong.append(f"{name}: {sorted(seen)} and not {sorted(expected)}")
    for (name, (fields, expected)), (other, (more, also)) in combinations(FILTERS.items(), 2):
        is_both = not fields.keys() & more.keys() and {*fields, *more} != {"since", "until"}
        if is_both and (seen := await search_filtered(client, cast, word, fields, more)) != expected & also:
            wrong.append(f"{name}, {other}: {sorted(seen)} and not {sorted(expected & also)}")
    return wrong


async def test_filters_hold_for_what_words_find(client: httpx.AsyncClient, cast: Cast, zoo: list[Observation]):
    assert await search_filtered(client, cast, "wombat") == {observation.number for observation in zoo}
    assert await every_filter(client, cast, "wombat") == []


async def test_filters_hold_for_what_meaning_finds(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, zoo: list[Observation], vectors: Vectors, make: Make
):
    for observation in zoo:
        vectors.give(observation, [1, 0.01 * observation.number])
    vectors.give(await make.observation(project=cast.alice.project, title="far away", kind="manual"), [-1, 0])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))

    hits = (await post_search(client, cast.alice, "marsupial"))["observations"]
    assert {hit["number"]: hit["matchType"] for hit in hits} == {observation.number: "semantic" for observation in zoo}
    assert await every_filter(client, cast, "marsupial") == []


@pytest.mark.parametrize("by_meaning", [False, True])
async def test_projects_are_one_several_or_all_of_the_team_and_what_is_shared_is_found_from_each(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, db: Db, request: pytest.FixtureRequest, by_meaning: bool
):
    billing, zoo = await bound_to(db, cast.alice, "billing"), await bound_to(db, cast.alice, "zoo")
    whose = [cast.alice, billing, zoo, zoo, cast.charlie]
    made = [
        await make.observation(project=person.project, title=f"wombat {n}", scope="team" if n == 3 else "project")
        for n, person in enumerate(whose)
    ]
    word = "wombat"
    if by_meaning:
        vectors: Vectors = request.getfixturevalue("vectors")
        for observation in made:
            vectors.give(observation, [1, 0])
        for person in (cast.alice, billing, zoo):  # without anything that is not near, nothing is nearer than usual
            for n in range(3):
                vectors.give(await make.observation(project=person.project, title=f"far away {n}"), [-1, 0])
        app.dependencies.get(Searcher).embedder, word = FakeEmbedder(vectors.near(1, 0)), "marsupial"

    async def seen(**fields: object) -> list[int]:
        body = {"query": word, "minScore": 0, **fields}
        response = await client.post("/v1/search", json=body, headers=cast.alice.headers)
        assert response.status_code == 200, response.text
        return sorted(hit["number"] for hit in response.json()["observations"])

    orders, own, shared = cast.alice.project.canonical_id, made[2].number, made[3].number
    assert await seen(projectId=orders) == [made[0].number, shared]
    assert await seen(projectId="zoo") == [own, shared]
    assert await seen(projects=[orders, "billing", orders]) == [made[0].number, made[1].number, shared]
    assert await seen(projects=["zoo", str(billing.project.id)]) == [made[1].number, own, shared]
    assert await seen() == [observation.number for observation in made[:4]]


@pytest.mark.parametrize("by_meaning", [False, True])
async def test_a_session_has_its_own(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, zoo: list[Observation], request: pytest.FixtureRequest, by_meaning: bool
):
    word = "wombat"
    if by_meaning:
        vectors: Vectors = request.getfixturevalue("vectors")
        for observation in zoo:
            vectors.give(observation, [1, 0.01 * observation.number])
        app.dependencies.get(Searcher).embedder, word = FakeEmbedder(vectors.near(1, 0)), "marsupial"

    assert await search_filtered(client, cast, word, {"session": str(zoo[0].server_session_id)}) == {1, 3}
    assert await search_filtered(client, cast, word, {"session": str(zoo[3].server_session_id)}) == {4}
    assert await search_filtered(client, cast, word, {"session": str(uuid4())}) == set()


async def test_prompts_are_found_by_default_and_by_the_filters_that_they_have(
    client: httpx.AsyncClient, cast: Cast, zoo: list[Observation], db: Db
):
    claude, codex = zoo[0].server_session_id, zoo[3].server_session_id
    assert claude
    assert codex
    events = [
        await prompt(client, cast.alice, claude, "feed the wombat, please"),
        await prompt(client, cast.alice, codex, "the wombat is fed again"),
        await prompt(client, cast.alice, codex, "something else"),
    ]
    stranger = await session(client, cast.charlie, "s-1")
    await prompt(client, cast.charlie, stranger, "feed the wombat, please")
    async with db.tenant(cast.alice.team_id) as conn:
        for hour, event in enumerate(events):
            await conn.execute("UPDATE turns SET created_at = %s WHERE agent_event_id = %s", [NOON + timedelta(hours=hour), event])

    async def prompts(query: str = "wombat", **fields: object) -> set[int]:
        answer = await post_search(client, cast.alice, query, **{"kinds": ["prompt"], **fields})
        assert answer["observations"] == [] or fields.get("kinds")
        return {events.index(hit["eventId"]) for hit in answer["prompts"]}

    assert len((await post_search(client, cast.alice, "wombat"))["prompts"]) == 2
    assert (await post_search(client, cast.alice, "wombat", kinds=["observation"]))["prompts"] == []
    assert (await post_search(client, cast.alice, "wombat", types=["change"]))["prompts"] == []
    assert await prompts() == {0, 1}
    assert await prompts(kinds=["prompt", "summary"]) == {0, 1}
    assert await prompts("wombat -please") == {1}
    assert await prompts('"wombat is fed"') == {1}
    assert await prompts(session=str(claude)) == {0}
    assert await prompts(agents=["codex"]) == {1}
    assert await prompts(since=epoch_ms(NOON + timedelta(hours=1))) == {1}
    assert await prompts(until=epoch_ms(NOON + timedelta(hours=1))) == {0}
    without: list[dict[str, Any]] = [{"types": ["bugfix"]}, {"concepts": ["x"]}, {"files": ["x"]}, {"filePrefix": "x"}]
    for nothing in without:
        assert await prompts("wombat", **nothing) == set()


@try_rows(
    ("fields", "path"),
    [
        ({"kinds": ["poem"]}, "$.kinds[0]"),
        ({"kinds": []}, "$.kinds"),
        ({"types": []}, "$.types"),
        ({"types": [""]}, "$.types[0]"),
        ({"concepts": ["x"] * 51}, "$.concepts"),
        ({"files": "src"}, "$.files"),
        ({"filePrefix": ""}, "$.filePrefix"),
        ({"agents": [1]}, "$.agents[0]"),
        ({"session": "not-an-id"}, "$.session"),
        ({"since": "yesterday"}, "$.since"),
        ({"until": 10**18}, "$.until"),
        ({"since": 5, "until": 5}, "$.until"),
        ({"limit": 0}, "$.limit"),
        ({"limit": 101}, "$.limit"),
        ({"minScore": 1.5}, "$.minScore"),
        ({"meaningWeight": -1}, "$.meaningWeight"),
        ({"neighbours": "no"}, "$.neighbours"),
        ({"format": "short"}, "$.format"),
        ({"query": ""}, "$.query"),
        ({"projects": []}, "$.projects"),
        ({"projects": ["github.com/acme/orders"], "projectId": "github.com/acme/orders"}, "$.projects"),
    ],
    ids=str,
)
async def test_what_is_no_value_is_refused_with_its_place(
    client: httpx.AsyncClient, cast: Cast, fields: dict[str, object], path: str
):
    response = await post(client, cast.alice, "/v1/search", **{"query": "wombat", **fields})

    assert response.status_code == 400, response.text
    assert response.json()["issues"][0]["path"] == path


@pytest.mark.parametrize("stranger", ["nowhere", "of charlie"])
async def test_a_project_that_is_not_there_is_named_by_its_place(client: httpx.AsyncClient, cast: Cast, stranger: str):
    named = str(cast.charlie.project.id) if stranger == "of charlie" else stranger

    response = await post(client, cast.alice, "/v1/search", query="x", projects=[cast.alice.project.canonical_id, named])

    assert (response.status_code, response.json()["error"]) == (404, "NotFound")
