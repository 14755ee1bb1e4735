"""The aims of context on a prompt, on the labelled prompts of tests/recall/history, by words alone and with meaning."""

from __future__ import annotations

import pytest

from cmserver.base.db import Db
from cmserver.embeddings.model import QueryVector, document_text
from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.embedding.registry import make
from cmserver.observations import repository as observations
from cmserver.observations.model import ObservationFilter
from tests.conftest import Cast
from tests.recall.history.measure import Embed, Typed, figures, fill, table, typed
from tests.recall.search.conftest import vectors
from tests.recall.search.tools import Vectors

__all__ = ["vectors"]  # a fixture


@pytest.fixture
async def history(db: Db, cast: Cast) -> None:
    """Alice's project remembers it."""
    async with db.tenant(cast.alice.team_id) as conn:
        await fill(conn, cast.alice.project)


@pytest.mark.usefixtures("history")
async def test_prompts_are_told_what_helps_and_mostly_nothing_else(db: Db, cast: Cast):
    done = await type_prompts(db, cast)
    print(f"\n{table(done)}")  # noqa: T201 - shown by pytest -s

    for of, helped in ((figures(done, "test"), 0.68), (figures(done, "second"), 0.54), (figures(done), 0.6)):
        assert of.unrelated >= 27
        assert of.related >= 27
        assert of.silent >= 0.87
        assert of.helped >= helped


@pytest.mark.usefixtures("history")
async def test_with_meaning_more_prompts_are_told_what_helps(db: Db, cast: Cast, vectors: Vectors):
    """Observations are measured by a sentence; their history has no turns."""
    embedder = make(EmbedderSettings(provider="local"))
    async with db.tenant(cast.alice.team_id) as conn:
        remembered = await observations.newest(
            conn, cast.alice.team_id, ObservationFilter(project_id=cast.alice.project.id), limit=1_000
        )
    texts = [document_text(observation) for observation in remembered]
    for observation, vector in zip(remembered, await embedder.embed(texts, "document"), strict=True):
        vectors.give_to("observation", observation.id, [float(number) for number in str(vector).strip("[]").split(",")])

    async def embed(text: str) -> QueryVector:
        (vector,) = await embedder.embed([text], "query")
        return QueryVector(model_id=vectors.model_id, provider="local", dimensions=256, vector=str(vector))

    done = await type_prompts(db, cast, embed)
    print(f"\n{table(done)}")  # noqa: T201 - shown by pytest -s

    for of, helped in ((figures(done, "development"), 0.75), (figures(done, "test"), 0.85), (figures(done, "second"), 0.7)):
        assert of.silent >= 0.87
        assert of.helped >= helped


async def type_prompts(db: Db, cast: Cast, embed: Embed | None = None) -> list[Typed]:
    async with db.tenant(cast.alice.team_id) as conn:
        return await typed(conn, cast.alice.principal, cast.alice.project, embed)
