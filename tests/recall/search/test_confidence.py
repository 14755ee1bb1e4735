"""How likely a query is about what is searched."""

from __future__ import annotations

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.embeddings.model import Calibration, QueryVector
from cmserver.observations.model import Observation
from cmserver.recall.search.confidence import (
    LEAST_DOCUMENTS,
    LOCAL,
    LOCAL_CALIBRATION,
    estimate_confidence,
    find_coefficients,
    share_of_words,
)
from cmserver.recall.search.searcher import Searcher
from cmserver.sessions.turns.model import SessionTurn
from tests.conftest import Cast
from tests.doors.mcp.tools import call
from tests.make import Make
from tests.recall.search.test_filters import FakeEmbedder
from tests.recall.search.tools import Vectors, post_search

LOW = 0.21
"""Few questions of one's own project are below, and nearly all of another's."""


def make_vector(provider: str, calibration: Calibration | None = None) -> QueryVector:
    return QueryVector(model_id=1, provider=provider, dimensions=2, vector="[1,0]", calibration=calibration)


def confidence(word_count: int, words: float = 0.0, cosine: float = 0.0) -> float:
    return estimate_confidence(LOCAL, words=words, cosine=cosine, word_count=word_count)


def test_words_nearness_and_length_make_it_likely_that_a_query_is_about_the_project():
    assert confidence(0) < confidence(12) < 0.01
    assert confidence(5, words=0.2, cosine=0.3) < LOW
    assert confidence(5, words=0.6, cosine=0.5) > LOW
    assert confidence(5, cosine=0.8) > LOW
    assert confidence(12, words=0.2, cosine=0.3) > confidence(3, words=0.2, cosine=0.3)


def test_the_best_hit_has_a_share_of_what_the_words_weigh():
    assert share_of_words(2.0, [1.0, 1.0]) == 1
    assert share_of_words(1.0, [1.0, 3.0]) == 0.25
    assert share_of_words(9.0, [1.0]) == 1
    assert share_of_words(0.0, []) == 0


def test_an_embedder_without_coefficients_has_no_confidence():
    assert find_coefficients(make_vector("local")) == LOCAL
    assert find_coefficients(make_vector("openai")) is None


def test_a_calibration_gives_another_model_s_cosines_the_weight_of_the_local_ones():
    # every cosine is 0.8 and a tenth of the local one
    squeezed = Calibration(intercept=LOCAL_CALIBRATION.intercept - 8 * LOCAL_CALIBRATION.slope, slope=10 * LOCAL_CALIBRATION.slope)
    derived = find_coefficients(make_vector("openai", squeezed))

    assert derived is not None
    for words, cosine in ((0.1, 0.2), (0.4, 0.3), (0.5, 0.7)):
        other = estimate_confidence(derived, words=words, cosine=0.8 + cosine / 10, word_count=6)
        assert other == pytest.approx(confidence(6, words, cosine))


async def test_an_answer_says_its_confidence_and_without_an_embedder_that_it_knows_none(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors
):
    for n in range(LEAST_DOCUMENTS):
        vectors.give(await make.observation(project=cast.alice.project, title=f"The wombat {n} is fed"), [1, n / 20])

    by_words = await post_search(client, cast.alice, "wombat")
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))
    about = await post_search(client, cast.alice, "is the wombat fed")
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(0, -1))
    strange = await post_search(client, cast.alice, "quantum flux capacitor wombat")

    assert by_words["confidence"] is None
    assert 0 < strange["confidence"] < LOW < about["confidence"] < 1
    assert strange["observations"]


async def test_every_answer_to_a_query_says_the_confidence_of_the_search(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors
):
    for n in range(LEAST_DOCUMENTS):
        vectors.give(await make.observation(project=cast.alice.project, title=f"The wombat {n} is fed"), [1, n / 20])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))
    query = {"query": "is the wombat fed", "projectId": cast.alice.project.canonical_id}
    as_text = {**cast.alice.headers, "Accept": "text/plain"}

    searched = await post_search(client, cast.alice, "is the wombat fed")
    lines = (await client.post("/v1/search", json=query, headers=as_text)).text
    context = (await client.post("/v1/context", json=query, headers=cast.alice.headers)).json()

    likely = f"{searched['confidence']:.0%} likely"
    assert likely in lines.splitlines()[-1]
    assert context["confidence"] == searched["confidence"]
    for tool in ("observation_search", "observation_context"):
        assert likely in (await call(client, cast.alice, tool, **query))[0], tool
    nothing = {**query, "query": "quantum flux", "types": ["decision"]}
    searched = (await client.post("/v1/search", json=nothing, headers=cast.alice.headers)).json()
    likely = f"{searched['confidence']:.0%} likely"
    assert likely in (await client.post("/v1/search", json=nothing, headers=as_text)).text
    assert likely in (await call(client, cast.alice, "observation_search", **nothing))[0]


async def test_where_only_turns_are_searched_they_say_the_confidence(
    client: httpx.AsyncClient, app: AsgiFrame, cast: Cast, make: Make, vectors: Vectors
):
    for n in range(LEAST_DOCUMENTS):
        vectors.give(await make.turn(project=cast.alice.project, prompt=f"Is wombat {n} fed?", reply="It is fed."), [1, n / 20])
    about: dict[str, float] = {}
    for name, vector in {"near": vectors.near(1, 0), "far": vectors.near(0, -1)}.items():
        app.dependencies.get(Searcher).embedder = FakeEmbedder(vector)
        for kinds in (None, ["turn"]):
            about[f"{name} {kinds}"] = (await post_search(client, cast.alice, "is the wombat fed", kinds=kinds))["confidence"]
    vectors.give(await make.observation(project=cast.alice.project, title="The quokka sleeps"), [0, -1])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))
    beside = {
        name: (await post_search(client, cast.alice, "is the wombat fed", kinds=kinds))["confidence"]
        for name, kinds in (("all", None), ("turns", ["turn"]), ("observations", ["observation"]))
    }

    assert about["near None"] == about["near ['turn']"] > 0.5 > about["far None"] == about["far ['turn']"]
    assert beside["all"] == beside["turns"] > 0.5 > LOW > beside["observations"]


@pytest.mark.parametrize(("observations", "turns"), [(LEAST_DOCUMENTS, 0), (0, LEAST_DOCUMENTS), (LEAST_DOCUMENTS - 1, 1)])
async def test_in_a_small_memory_nothing_is_said(
    client: httpx.AsyncClient,
    app: AsgiFrame,
    cast: Cast,
    make: Make,
    vectors: Vectors,
    observations: int,
    turns: int,
):
    project = cast.alice.project
    rows: list[Observation | SessionTurn] = [
        *[await make.observation(project=project, title=f"The wombat {n} is fed") for n in range(observations)],
        *[await make.turn(project=project, prompt=f"Is wombat {n} fed?", reply="It is fed.") for n in range(turns)],
    ]
    for row in rows:
        vectors.give(row, [0, 1])
    app.dependencies.get(Searcher).embedder = FakeEmbedder(vectors.near(1, 0))
    query = {"query": "quokka", "projectId": project.canonical_id}

    enough = await post_search(client, cast.alice, "quokka wombat")
    if observations:
        await client.delete(f"/v1/observations/{rows[0].number}", headers=cast.alice.headers)
    else:
        async with app.dependencies.get(Db).system() as conn:
            await conn.execute("DELETE FROM turns WHERE id = %s", [rows[0].id])
    few = await post_search(client, cast.alice, "quokka wombat")
    context = (await client.post("/v1/context", json=query, headers=cast.alice.headers)).json()

    assert 0 < enough["confidence"] < LOW
    assert (few["confidence"], context["confidence"]) == (None, None)
    assert few["observations"] or few["prompts"]
    assert "likely" not in (await call(client, cast.alice, "observation_search", **query))[0]


async def test_where_none_is_known_no_answer_says_one(client: httpx.AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, title="The wombat is fed")
    query = {"query": "wombat", "projectId": cast.alice.project.canonical_id}

    lines = await client.post("/v1/search", json=query, headers={**cast.alice.headers, "Accept": "text/plain"})
    context = await client.post("/v1/context", json=query, headers=cast.alice.headers)

    assert "likely" not in lines.text
    assert context.json()["confidence"] is None
