"""Two teams with the same texts and the same vectors: neither sees or feels the other."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import Frame
from cmserver.recall.search.model import Asked
from cmserver.recall.search.search import find
from tests.compat.worker import prompt, session
from tests.conftest import Cast, Person, bound_to
from tests.make import Make
from tests.recall.search.test_filters import Near
from tests.recall.search.tools import PLAIN, Vectors, answered, found, numbers, post

TITLES = ("The wombat is fed", "The wombat escaped the zoo", "A numbat was seen", "The keeper checks the fence")


async def fill(client: httpx.AsyncClient, make: Make, who: Person, vectors: Vectors | None) -> None:
    in_session = await session(client, who, "s-1")
    for place, title in enumerate(TITLES):
        one = await make.observation(
            project=who.project, title=title, server_session_id=in_session, scope="team" if place == 1 else "project"
        )
        if vectors:
            vectors.give(one, [1, place])
    await prompt(client, who, in_session, "where is the wombat")


async def told(client: httpx.AsyncClient, who: Person) -> list[Any]:
    """All that search says, in each scope."""
    scopes: list[dict[str, object]] = [{}, {"projects": [who.project.canonical_id]}, {"projectId": str(who.project.id)}]
    kinds = ["observation", "prompt"]
    said = [await answered(client, who, "wombat zoo zebra", explain=True, kinds=kinds, recency=0, **scope) for scope in scopes]
    whole = {"query": "wombat", "minScore": 0, "explain": True, "recency": 0, "kinds": kinds}
    response = await client.post("/v1/search", json=whole, headers=who.headers)
    return [*said, response.json()]


@pytest.mark.parametrize("by_meaning", [False, True])
async def test_what_another_team_stores_changes_no_hit_no_total_and_no_score(
    client: httpx.AsyncClient, app: Frame, cast: Cast, make: Make, request: pytest.FixtureRequest, by_meaning: bool
):
    vectors: Vectors | None = request.getfixturevalue("vectors") if by_meaning else None
    if vectors:
        app.state.searcher.meaning = Near(vectors.near(1, 0.2))
    await fill(client, make, cast.alice, vectors)
    before = await told(client, cast.alice)

    await fill(client, make, cast.charlie, vectors)
    for _ in range(30):
        one = await make.observation(project=cast.charlie.project, title="wombat zoo zebra", scope="team")
        if vectors:
            vectors.give(one, [1, 0.2])

    assert await told(client, cast.alice) == before
    assert before[0]["observations"]
    assert before[0]["prompts"]
    assert before[0]["terms"]["zebra"] == 0
    team = str(cast.alice.team_id)
    assert {one["teamId"] for said in before for one in said["observations"]} == {team}


async def test_the_words_of_a_text_are_not_found_from_outside_its_project_and_team(
    client: httpx.AsyncClient, cast: Cast, make: Make, db: Db
):
    await make.observation(project=cast.alice.project, title="wombat")
    bound = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])

    # Charlie's project has the same canonical id, in another team
    assert await found(client, cast.charlie, "wombat") == []
    assert await found(client, cast.bob, "wombat") == [1]
    assert await found(client, cast.alice, "wombat", projectId="billing") == []
    own = await client.post("/v1/search", json={"query": "wombat"}, headers=bound.headers)
    assert (own.json()["observations"], own.json()["total"]) == ([], 0)


async def test_a_key_of_a_project_names_no_other_one(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project, title="wombat")
    bound = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])

    for named in (str(cast.alice.project.id), "github.com/acme/orders", "no such", str(cast.charlie.project.id)):
        for fields in ({"projectId": named}, {"projects": [named]}, {"projects": ["billing", named]}):
            response = await post(client, bound, "/v1/search", query="wombat", **fields)

            assert (response.status_code, response.json()["message"]) == (404, "There is no such project.")


async def test_a_key_of_a_project_searches_that_whatever_its_door_says(cast: Cast, make: Make, db: Db):
    bound = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])
    await make.observation(project=cast.alice.project, title="wombat")
    own = await make.observation(project=bound.project, title="wombat")

    async with db.tenant(bound.team_id) as conn:
        pages = [
            await find(conn, bound.principal, Asked(query="wombat", project_ids=scope), PLAIN)
            for scope in (None, [cast.alice.project.id])
        ]

    assert [numbers(page) for page in pages] == [[own.number]] * 2


async def test_the_nearest_of_a_key_of_a_project_are_of_its_project(
    client: httpx.AsyncClient, app: Frame, cast: Cast, make: Make, db: Db, vectors: Vectors
):
    bound = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])
    for who in (cast.alice, bound, cast.charlie):
        for place in range(3):
            vectors.give(await make.observation(project=who.project, title=f"text {place}", scope="project"), [1, place])
    app.state.searcher.meaning = Near(vectors.near(1, 0))

    told = await client.post("/v1/search", json={"query": "marsupial", "minScore": 0}, headers=bound.headers)

    assert {one["projectId"] for one in told.json()["observations"]} == {str(bound.project.id)}


async def test_a_session_of_another_team_is_no_filter(client: httpx.AsyncClient, cast: Cast, make: Make):
    theirs = await session(client, cast.charlie, "s-1")
    await make.observation(project=cast.charlie.project, title="wombat", server_session_id=theirs)

    assert await found(client, cast.alice, "wombat", session=str(theirs)) == []
    assert await found(client, cast.charlie, "wombat", session=str(theirs)) == [1]
