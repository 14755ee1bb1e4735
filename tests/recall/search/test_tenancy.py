"""Two teams with the same texts and the same vectors: neither sees or feels the other."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.recall.search.model import SearchRequest
from cmserver.recall.search.search import find_page
from cmserver.recall.search.searcher import Searcher
from tests.conftest import Cast, Person, bound_to
from tests.doors.claude_mem.worker import prompt, session
from tests.make import Make
from tests.recall.search.test_filters import FakeEmbedder
from tests.recall.search.tools import PLAIN, Vectors, numbers, post, post_search, search_numbers

TITLES = ("The wombat is fed", "The wombat escaped the zoo", "A numbat was seen", "The keeper checks the fence")


async def fill(client: httpx.AsyncClient, make: Make, person: Person, vectors: Vectors | None) -> None:
    in_session = await session(client, person, "s-1")
    for place, title in enumerate(TITLES):
        observation = await make.observation(
            project=person.project, title=title, server_session_id=in_session, scope="team" if place == 1 else "project"
        )
        if vectors:
            vectors.give(observation, [1, place])
    await prompt(client, person, in_session, "where is the wombat")


async def search_everywhere(client: httpx.AsyncClient, person: Person) -> list[Any]:
    """All that search says, in each scope."""
    scopes: list[dict[str, object]] = [{}, {"projects": [person.project.canonical_id]}, {"projectId": str(person.project.id)}]
    kinds = ["observation", "prompt"]
    answers = [await post_search(client, person, "wombat zoo zebra", explain=True, kinds=kinds, **scope) for scope in scopes]
    whole = {"query": "wombat", "minScore": 0, "explain": True, "kinds": kinds}
    response = await client.post("/v1/search", json=whole, headers=person.headers)
    return [*answers, response.json()]


@pytest.mark.parametrize("by_meaning", [False, True])
async def test_what_another_team_stores_changes_no_hit_no_total_and_no_score(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, request: pytest.FixtureRequest, by_meaning: bool
):
    vectors: Vectors | None = request.getfixturevalue("vectors") if by_meaning else None
    if vectors:
        app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0.2))
    await fill(client, make, cast.alice, vectors)
    before = await search_everywhere(client, cast.alice)

    await fill(client, make, cast.charlie, vectors)
    for _ in range(30):
        observation = await make.observation(project=cast.charlie.project, title="wombat zoo zebra", scope="team")
        if vectors:
            vectors.give(observation, [1, 0.2])

    assert await search_everywhere(client, cast.alice) == before
    assert before[0]["observations"]
    assert before[0]["prompts"]
    assert before[0]["terms"]["zebra"] == 0
    team = str(cast.alice.team_id)
    assert {hit["teamId"] for answer in before for hit in answer["observations"]} == {team}


async def test_the_words_of_a_text_are_not_found_from_outside_its_project_and_team(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db
):
    await make.observation(project=cast.alice.project, title="wombat")
    bound = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])

    # Charlie's project has the same canonical id, in another team
    assert await search_numbers(client, cast.charlie, "wombat") == []
    assert await search_numbers(client, cast.bob, "wombat") == [1]
    assert await search_numbers(client, cast.alice, "wombat", projectId="billing") == []
    own = await client.post("/v1/search", json={"query": "wombat"}, headers=bound.headers)
    assert (own.json()["observations"], own.json()["total"]) == ([], 0)


async def test_a_key_of_a_project_names_no_other_one(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project, title="wombat")
    bound = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])

    for named in (str(cast.alice.project.id), "github.com/acme/orders", "no such", str(cast.charlie.project.id)):
        for fields in ({"projectId": named}, {"projects": [named]}, {"projects": ["billing", named]}):
            response = await post(client, bound, "/v1/search", query="wombat", **fields)

            assert (response.status_code, response.json()["error"]) == (404, "NotFound")


async def test_a_key_of_a_project_searches_that_whatever_its_door_says(cast: Cast, make: Make, db: Db):
    bound = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])
    await make.observation(project=cast.alice.project, title="wombat")
    own = await make.observation(project=bound.project, title="wombat")

    async with db.tenant(bound.team_id) as conn:
        pages = [
            await find_page(conn, bound.principal, SearchRequest(query="wombat", project_ids=scope), PLAIN)
            for scope in (None, [cast.alice.project.id])
        ]

    assert [numbers(page) for page in pages] == [[own.number]] * 2


async def test_the_nearest_of_a_key_of_a_project_are_of_its_project(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, db: Db, vectors: Vectors
):
    bound = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])
    for person in (cast.alice, bound, cast.charlie):
        for place in range(3):
            vectors.give(await make.observation(project=person.project, title=f"text {place}", scope="project"), [1, place])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))

    response = await client.post("/v1/search", json={"query": "marsupial", "minScore": 0}, headers=bound.headers)

    assert {hit["projectId"] for hit in response.json()["observations"]} == {str(bound.project.id)}


async def test_a_session_of_another_team_is_no_filter(client: httpx.AsyncClient, cast: Cast, make: Make):
    theirs = await session(client, cast.charlie, "s-1")
    await make.observation(project=cast.charlie.project, title="wombat", server_session_id=theirs)

    assert await search_numbers(client, cast.alice, "wombat", session=str(theirs)) == []
    assert await search_numbers(client, cast.charlie, "wombat", session=str(theirs)) == [1]
