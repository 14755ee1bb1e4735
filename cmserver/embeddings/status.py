"""The state of embedding, and trying again what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from uuid import UUID

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.embeddings import repository
from cmserver.embeddings.model import EmbeddingModel, WaitingCount
from cmserver.embeddings.model_choice import settings_of_model
from cmserver.embeddings.wire import EmbeddingsOut, NextModelOut
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.embedding.model import EmbedderSettings


async def read_status(conn: Conn, team_id: UUID, project_id: UUID | None, settings: Settings) -> EmbeddingsOut:
    """How embedding goes, as this process sees it: another one may have what is missing here."""
    counts = await repository.waiting(conn, team_id, project_id)
    models = {model.state: model for model in await repository.MODELS.all(conn)}
    current, building = models.get("current"), models.get("building")
    hint = _hint(settings, [*filter(None, (building, current))], is_possible=await repository.IS_POSSIBLE.one(conn))
    waiting, failing = _count(current, counts)
    is_complete = current is not None and current.is_backfilled and waiting == 0
    return EmbeddingsOut(
        state="off" if current is None else "complete" if is_complete else "filling",
        embedder=current.provider if current else None,
        model=current.model if current else None,
        dimensions=current.dimensions if current else None,
        waiting=waiting,
        failing=failing,
        pulled_percent=current.pulled_percent if current else None,
        building=_building_out(building, counts) if building else None,
        hint=hint,
    )


def _building_out(model: EmbeddingModel, counts: Mapping[int, WaitingCount]) -> NextModelOut:
    waiting, failing = _count(model, counts)
    return reshape(model, NextModelOut, embedder=model.provider, waiting=waiting, failing=failing)


def _count(model: EmbeddingModel | None, counts: Mapping[int, WaitingCount]) -> tuple[int, int]:
    """How many observations wait for the model, and how many of them could not be embedded when it was last tried."""
    count = counts.get(model.id) if model else None
    return (count.waiting, count.failing) if count else (0, 0)


def _hint(settings: Settings, models: Sequence[EmbeddingModel], *, is_possible: bool) -> str | None:
    """Why search by meaning does not work here, or not fully; None when nothing is missing."""
    if not is_possible:
        return "The database has no pgvector: search goes by words."
    chosen = embedders.embedder_settings(settings)
    if chosen is None and not models:
        if settings.embedder == "none":
            return "CMSERVER_EMBEDDER is none: search goes by words."
        return "No embedder is set, and local is not installed (pip install 'cmserver[local]'): search goes by words."
    candidates = [*filter(None, [chosen]), *(settings_of_model(settings, model) for model in models)]
    hint = next((hint for model in candidates if (hint := explain_missing(model))), None)
    return hint if hint or models else "No worker has run since the embedder was set."


@lru_cache(maxsize=8)
def explain_missing(embedder_settings: EmbedderSettings) -> str | None:
    """A sentence, when this process cannot ask that embedder."""
    try:
        embedders.make(embedder_settings)
    except Invalid as error:
        return str(error)
    return None


async def retry_failed(conn: Conn, principal: Principal) -> int:
    """Make all that failed in what the key reaches due now; how many embeddings."""
    count = await repository.retry(conn, principal.team_id, principal.project_id)
    await audit.record(conn, principal, "embeddings.retried", "embedding", None, project_id=principal.project_id, embeddings=count)
    await announce.notify_stream(conn)  # workers look at once
    return count
