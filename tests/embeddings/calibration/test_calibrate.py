"""What an embedder's cosines mean is measured with a team's own documents, and is the team's."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import httpx
import pytest

from cmserver.base.errors import Conflict, Unavailable
from cmserver.embeddings.calibration import repository
from cmserver.embeddings.calibration.calibrate import MIN_TITLES, calibrate, calibrate_team
from cmserver.embeddings.calibration.jobs import calibrate_teams
from cmserver.embeddings.calibration.model import BUILT_IN, StoredCalibration
from cmserver.embeddings.calibration.stranger_titles import STRANGER_TITLES
from cmserver.embeddings.model import Calibration, EmbeddingModel
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.models.providers.embedding import registry
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings, Purpose
from cmserver.models.providers.model import FailureKind, ProviderError
from cmserver.recall.search.confidence import LOCAL_CALIBRATION
from cmserver.recall.search.model import Ranking
from tests.bench.recall.corpora import history
from tests.conftest import Cast, bound_to
from tests.embeddings.calibration.conftest import Calibrated, list_documents
from tests.embeddings.fake import Fake
from tests.recall.search.tools import run_search


def make_local(dimensions: int | None = None) -> Embedder:
    return registry.make(
        EmbedderSettings(
            provider="local",
            model=None,
            base_url=None,
            dimensions=dimensions,
            document_prefix="",
            api_key=None,
            timeout_seconds=5,
        )
    )


class Narrow(Fake):
    """The local embedder's vectors, all moved in one direction: every cosine is above 0.8."""

    def __init__(self) -> None:
        super().__init__("narrow", dimensions=257, max_texts=64)
        self._local = make_local()

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        if self.error is not None:
            raise self.error
        self.texts += texts if purpose == "query" else []
        moved = [[*vector, 2.5] for vector in await self._local.embed(texts, purpose)]
        return [[number / hypot(*vector) for number in vector] for vector in moved]


def log_odds(calibration: Calibration, cosine: float) -> float:
    return calibration.intercept + calibration.slope * cosine


async def nearest(
    calibrated: Calibrated, cast: Cast, model: EmbeddingModel, embedder: Embedder, texts: Sequence[str]
) -> list[float]:
    vectors = await embedder.embed(texts, "query")
    async with calibrated.db.tenant(cast.alice.team_id) as conn:
        return [
            await repository.find_nearest_cosine(conn, cast.alice.team_id, cast.alice.project.id, model.id, str(vector), None)
            for vector in vectors
        ]


async def find(calibrated: Calibrated, cast: Cast, model: EmbeddingModel, name: str = "alice") -> StoredCalibration | None:
    team_id = getattr(cast, name).team_id
    async with calibrated.db.tenant(team_id) as conn:
        return await repository.find(conn, team_id, model.id)


async def test_questions_of_the_project_are_told_from_strangers_whatever_range_the_cosines_have(calibrated: Calibrated, cast: Cast):
    embedder, model = Narrow(), calibrated.use("ollama", "narrow", 257)
    await calibrated.fill(cast.alice.project, 120, model, embedder)
    keys = {document.key for document in list_documents(120)}
    questions = [it for it in history.load().of_half("development") if it.is_answerable]
    own = [it.text for it in questions if all(keys & set(group) for group in it.expects)]
    foreign = ["Which camp did Melanie's kids go to?", "recipe for lentil soup", "who won the tennis final in June"]

    calibration = await calibrate(calibrated.db, cast.alice.principal, model, embedder)

    own_cosines = await nearest(calibrated, cast, model, embedder, own)
    foreign_cosines = await nearest(calibrated, cast, model, embedder, foreign)
    assert min(own_cosines + foreign_cosines) > 0.8
    assert sum(log_odds(calibration, cosine) > 0 for cosine in own_cosines) >= 0.8 * len(own)
    assert not any(log_odds(calibration, cosine) > 0 for cosine in foreign_cosines)


async def test_the_default_embedder_measured_so_is_near_to_what_comes_with_the_program(calibrated: Calibrated, cast: Cast):
    provider, name, dimensions = BUILT_IN
    embedder, model = make_local(), calibrated.use(provider, name, dimensions)
    await calibrated.fill(cast.alice.project, 250, model, embedder)

    calibration = await calibrate(calibrated.db, cast.alice.principal, model, embedder)

    even, built_in_even = (-it.intercept / it.slope for it in (calibration, LOCAL_CALIBRATION))
    assert even == pytest.approx(built_in_even, abs=0.05)
    assert calibration.slope == pytest.approx(LOCAL_CALIBRATION.slope, rel=0.2)


async def test_it_is_kept_for_the_team_and_measured_again_in_its_place(calibrated: Calibrated, cast: Cast):
    embedder, model = Narrow(), calibrated.use("ollama", "narrow", 257)
    await calibrated.fill(cast.alice.project, MIN_TITLES, model, embedder)

    first = await calibrate(calibrated.db, cast.alice.principal, model, embedder)
    await calibrated.fill(cast.alice.project, 2 * MIN_TITLES, model, embedder)
    again = await calibrate(calibrated.db, cast.alice.principal, model, embedder)

    assert (first.titles, again.titles) == (MIN_TITLES, 2 * MIN_TITLES)
    assert await find(calibrated, cast, model) == again
    assert await find(calibrated, cast, model, "charlie") is None


async def test_too_few_documents_are_not_measured(calibrated: Calibrated, cast: Cast):
    embedder, model = Narrow(), calibrated.use("ollama", "narrow", 257)
    await calibrated.fill(cast.alice.project, MIN_TITLES - 1, model, embedder)

    with pytest.raises(Conflict, match="49 embedded observations"):
        await calibrate(calibrated.db, cast.alice.principal, model, embedder)


async def test_without_a_model_and_for_the_built_in_one_there_is_nothing_to_measure(calibrated: Calibrated, cast: Cast):
    with pytest.raises(Conflict, match="goes by words"):
        await calibrate_team(calibrated.db, calibrated.settings, cast.alice.principal)
    calibrated.use(*BUILT_IN)
    with pytest.raises(Conflict, match="needs no calibration"):
        await calibrate_team(calibrated.db, calibrated.settings, cast.alice.principal)


async def test_a_worker_measures_each_team_once_when_it_has_enough(calibrated: Calibrated, cast: Cast):
    embedder, model = Narrow(), calibrated.use("ollama", "narrow", 257)
    await calibrated.fill(cast.alice.project, MIN_TITLES, model, embedder)
    await calibrated.fill(cast.charlie.project, 5, model, embedder)

    await calibrate_teams(calibrated.db, calibrated.settings, lambda _: embedder)
    first = await find(calibrated, cast, model)
    await calibrate_teams(calibrated.db, calibrated.settings, lambda _: embedder)

    assert first is not None
    assert await find(calibrated, cast, model) == first
    assert await find(calibrated, cast, model, "charlie") is None
    audited = calibrated.room.ask("SELECT actor_id FROM audit_log WHERE action = 'embeddings.calibrated'")
    assert audited == [{"actor_id": "calibration"}]
    assert embedder.closed


async def test_an_embedder_that_does_not_answer_changes_nothing(calibrated: Calibrated, cast: Cast):
    embedder, model = Narrow(), calibrated.use("ollama", "narrow", 257)
    await calibrated.fill(cast.alice.project, MIN_TITLES, model, embedder)
    embedder.error = ProviderError(FailureKind.TRANSIENT, "No connection", out_of_reach=True)

    with pytest.raises(Unavailable, match="transient"):
        await calibrate_team(calibrated.db, calibrated.settings, cast.alice.principal, lambda _: embedder)
    await calibrate_teams(calibrated.db, calibrated.settings, lambda _: embedder)

    assert await find(calibrated, cast, model) is None


async def test_the_calibration_goes_with_its_model(calibrated: Calibrated, cast: Cast):
    embedder, model = Narrow(), calibrated.use("ollama", "narrow", 257)
    await calibrated.fill(cast.alice.project, MIN_TITLES, model, embedder)
    await calibrate(calibrated.db, cast.alice.principal, model, embedder)

    calibrated.room.ask("DELETE FROM observation_embeddings")
    calibrated.room.ask("DELETE FROM embedding_models")

    assert calibrated.room.ask("SELECT 1 FROM embedding_calibrations") == []


def test_the_strangers_are_many_and_different():
    assert len(STRANGER_TITLES) == len(set(STRANGER_TITLES)) >= MIN_TITLES


# -- over HTTP


async def test_over_http_shorter_vectors_of_the_default_embedder_are_measured(
    client: httpx.AsyncClient, calibrated: Calibrated, cast: Cast
):
    model = calibrated.use("local", BUILT_IN[1], 128)
    await calibrated.fill(cast.alice.project, MIN_TITLES, model, make_local(128))

    answer = await client.post("/v1/embeddings/calibrate", headers=cast.alice.headers)

    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["embedder"], shown["model"], shown["titles"]) == ("local", BUILT_IN[1], MIN_TITLES)
    assert 0.2 < shown["evenCosine"] < 0.6
    (audited,) = calibrated.room.ask("SELECT details FROM audit_log WHERE action = 'embeddings.calibrated'")
    assert audited["details"] == {"model": BUILT_IN[1], "titles": MIN_TITLES}


async def test_a_key_of_one_project_cannot_calibrate_for_its_team(client: httpx.AsyncClient, calibrated: Calibrated, cast: Cast):
    bound = await bound_to(calibrated.db, cast.alice, "github.com/acme/other")

    answer = await client.post("/v1/embeddings/calibrate", headers=bound.headers)

    assert answer.status_code == 403


# -- what searches make of it


async def test_searches_of_the_team_say_their_confidence_and_those_of_others_do_not(calibrated: Calibrated, cast: Cast):
    embedder, model = Narrow(), calibrated.use("ollama", "narrow", 257)
    queries = QueryEmbedder(calibrated.settings, calibrated.db, lambda _: embedder)
    await calibrated.fill(cast.alice.project, MIN_TITLES, model, embedder)
    assert await queries.embed_unasked("idempotency of the sync worker", cast.alice.team_id) is None
    assert embedder.texts == []  # nobody is sent a prompt for nothing

    await calibrate(calibrated.db, cast.alice.principal, model, embedder)
    fresh = QueryEmbedder(calibrated.settings, calibrated.db, lambda _: embedder)
    own = await ask(calibrated, cast, fresh, "what does `make dev` all start")
    foreign = await ask(calibrated, cast, fresh, "Which camp did Melanie's kids go to last summer?")

    assert own is not None
    assert foreign is not None
    assert own > 0.21 > foreign
    assert await fresh.embed_unasked("anything at all", cast.alice.team_id) is not None
    assert await fresh.embed_unasked("anything at all", cast.charlie.team_id) is None


async def ask(calibrated: Calibrated, cast: Cast, queries: QueryEmbedder, query: str) -> float | None:
    """The confidence of the answer."""
    vector = await queries.embed(query, team_id=cast.alice.team_id)
    page = await run_search(calibrated.db, cast.alice, query, ranking=Ranking(), sought=vector)
    return page.confidence
