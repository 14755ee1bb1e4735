"""Measures what a cosine of an embedding model means in a team's documents.

Titles of the team's own documents are questions that its project answers: the body without the title stands for the answer. Titles
of projects that nobody here has (`stranger_titles.py`) are questions about something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Invalid, Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.calibration import repository
from cmserver.embeddings.calibration.fit import fit
from cmserver.embeddings.calibration.model import StoredCalibration, TitledText, is_built_in
from cmserver.embeddings.calibration.stranger_titles import STRANGER_TITLES
from cmserver.embeddings.model import EmbeddingModel, document_text
from cmserver.embeddings.model_choice import settings_of_model
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings, Purpose
from cmserver.models.providers.model import ProviderError

log = get_logger(__name__)


class CalibratedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model, and what its cosines mean in the documents of the team that was calibrated."""

    model: EmbeddingModel
    calibration: StoredCalibration


MIN_TITLES = 50
"""One project needs this many embedded documents with a title."""
_MAX_TITLES = 100


async def calibrate_team(
    db: Db, settings: Settings, principal: Principal, make: Callable[[EmbedderSettings], Embedder] = embedders.make
) -> CalibratedModel:
    """Calibrate the model that search uses. Raises Conflict where there is nothing to measure, and Unavailable."""
    model = await db.statement_in_tenant(embeddings.CURRENT.first)
    if model is None or model.dimensions is None:
        raise Conflict("Nothing is embedded yet: search goes by words.")
    if is_built_in(model.provider, model.model, model.dimensions):
        raise Conflict(f"{model.provider} ({model.model}) needs no calibration: its coefficients come with cmserver.")
    try:
        embedder = make(settings_of_model(settings, model))
    except Invalid as error:
        raise Unavailable(str(error)) from error
    try:
        calibration = await calibrate(db, principal, model, embedder)
    except ProviderError as error:
        raise Unavailable(f"The embedder {model.provider} failed ({error.kind.value}). Nothing was changed; try again.") from error
    finally:
        await embedder.close()
    return CalibratedModel(model=model, calibration=calibration)


async def calibrate(db: Db, principal: Principal, model: EmbeddingModel, embedder: Embedder) -> StoredCalibration:
    """Measure and store it, in place of the one before. Raises Conflict where the documents are too few, and ProviderError."""
    team_id = principal.team_id
    async with db.tenant(team_id) as conn:
        documents = await repository.sample_titled(conn, team_id, model.id, _MAX_TITLES)
    if len(documents) < MIN_TITLES:
        raise Conflict(
            f"The largest project has {len(documents)} embedded observations with a title, and {MIN_TITLES} are needed: "
            "calibrate later, or see `cmserver embeddings status` for what waits."
        )
    project_id = documents[0].project_id
    titles = await _embed(embedder, [document.title or "" for document in documents], "query")
    bodies = await _embed(embedder, [document_text(_without_title(document)) for document in documents], "document")
    strangers = await _embed(embedder, STRANGER_TITLES, "query")
    own_cosines: list[float] = []
    async with db.tenant(team_id) as conn:
        for document, title, body in zip(documents, titles, bodies, strict=True):
            nearest = await repository.find_nearest_cosine(conn, team_id, project_id, model.id, str(title), document.observation_id)
            own_cosines.append(max(nearest, sum(x * y for x, y in zip(title, body, strict=True))))
        stranger_cosines = [
            await repository.find_nearest_cosine(conn, team_id, project_id, model.id, str(vector), None) for vector in strangers
        ]
    calibration = fit(own_cosines, stranger_cosines)
    if calibration is None:
        raise Conflict(f"The cosines of {model.model} do not tell the project's own titles from others: it stays uncalibrated.")

    async def save(conn: Conn) -> StoredCalibration:
        stored = await repository.save(conn, team_id, model.id, calibration, len(documents))
        await audit.record(conn, principal, "embeddings.calibrated", "embedding", None, model=model.model, titles=stored.titles)
        return stored

    stored = await db.in_tenant(team_id, save)
    log.info("embedder.calibrated", embedder=model.provider, model=model.model, titles=stored.titles)
    return stored


def _without_title(document: TitledText) -> TitledText:
    """Its text but for the title; a document without other fields is its content."""
    has_body = document.subtitle or document.narrative or document.facts
    return msgspec.structs.replace(document, title="" if has_body else None)


async def _embed(embedder: Embedder, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
    vectors: list[list[float]] = []
    for first in range(0, len(texts), embedder.max_texts):
        vectors += await embedder.embed(texts[first : first + embedder.max_texts], purpose)
    return vectors
