"""Embeds the texts of requests with the model that the stored vectors are from, before any transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from cmserver.base.db import Db
from cmserver.base.errors import CmserverError
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.base.text import QUERY_MOST
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.calibration import repository as calibrations
from cmserver.embeddings.calibration.model import CALIBRATED_EMBEDDER, is_built_in
from cmserver.embeddings.model import Calibration, EmbeddingModel, QueryVector
from cmserver.embeddings.model_choice import settings_of_model
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings, Purpose
from cmserver.models.providers.model import FailureKind, ProviderError

log = get_logger(__name__)

ANSWER_SECONDS = 1.0
"""A search does not wait longer for its vector."""
DOCUMENTS_SECONDS = 10.0
"""Nor does who stores observations for theirs."""
PAUSE_SECONDS = 15.0
"""After a failure the embedder is not called for so long."""
REFRESH_SECONDS = 5.0
"""How often the current model is looked up."""
CALIBRATION_SECONDS = 60.0
"""How often a team's calibration is looked up."""
_MAX_CALIBRATIONS = 1_000
_QUERY_FAILURES = {FailureKind.REFUSED, FailureKind.CONTEXT_TOO_LONG}
"""Failures that are about one query: the embedder is called for the next one."""


class QueryEmbedder:
    """Embeds queries, and observations to be compared before they are stored; never raises: without vectors it goes by words."""

    def __init__(self, settings: Settings, db: Db, make: Callable[[EmbedderSettings], Embedder] = embedders.make) -> None:
        self._settings = settings
        self._db = db
        self._make = make
        self._refreshing = asyncio.Lock()
        self._refreshed_at = -REFRESH_SECONDS
        self._paused_until = 0.0
        self._model: EmbeddingModel | None = None
        self._embedder: Embedder | None = None
        self._calibrations: dict[tuple[UUID, int], tuple[float, Calibration | None]] = {}

    async def embed(self, query: str, *, team_id: UUID | None = None) -> QueryVector | None:
        """The query's vector, with the team's calibration; None without a model, or when it does not answer in time."""
        query = query[:QUERY_MOST]  # the beginning of a prompt
        if not query.strip():
            return None
        vectors = await self._embed([query], "query", ANSWER_SECONDS)
        if not vectors:
            return None
        return msgspec.structs.replace(vectors[0], calibration=await self._find_calibration(team_id) if team_id else None)

    async def embed_unasked(self, text: str, team_id: UUID) -> QueryVector | None:
        """The vector of what nobody has searched for: only by a model whose confidence is known, and no other one is called."""
        model, _ = await self._current()
        if model is None or (model.provider != CALIBRATED_EMBEDDER and await self._find_calibration(team_id) is None):
            return None
        return await self.embed(text, team_id=team_id)

    async def embed_documents(self, texts: Sequence[str]) -> list[QueryVector] | None:
        """The vectors of these texts as those of stored observations are made; None as with `embed`."""
        vectors: list[QueryVector] = []
        _, embedder = await self._current()
        step = max(embedder.max_texts, 1) if embedder else len(texts)
        for start in range(0, len(texts), step or 1):
            part = await self._embed(texts[start : start + step], "document", DOCUMENTS_SECONDS)
            if part is None:
                return None
            vectors += part
        return vectors or None

    async def _embed(self, texts: Sequence[str], purpose: Purpose, answer_seconds: float) -> list[QueryVector] | None:
        model, embedder = await self._current()
        if model is None or embedder is None or model.dimensions is None:
            return None
        if time.monotonic() < self._paused_until:
            return None
        try:
            async with asyncio.timeout(answer_seconds):
                vectors = await embedder.embed(texts, purpose)
        except (ProviderError, TimeoutError, RuntimeError) as error:  # httpx says so of a client that was closed meanwhile
            pause = 0.0 if isinstance(error, ProviderError) and error.kind in _QUERY_FAILURES else PAUSE_SECONDS
            self._paused_until = time.monotonic() + pause
            other = "timeout" if isinstance(error, TimeoutError) else "closed"
            kind = error.kind.value if isinstance(error, ProviderError) else other
            log.warning("search.without_meaning", embedder=model.provider, reason=kind, pause_seconds=pause)
            return None
        if [len(vector) for vector in vectors] != [model.dimensions] * len(texts):
            return None
        return [
            QueryVector(
                model_id=model.id,
                provider=model.provider,
                model=model.model,
                dimensions=model.dimensions,
                vector="[" + ",".join(map(repr, vector)) + "]",
            )
            for vector in vectors
        ]

    async def _find_calibration(self, team_id: UUID) -> Calibration | None:
        """The team's, looked up again after CALIBRATION_SECONDS; None for a model that has none, or needs none."""
        model, _ = await self._current()
        if model is None or is_built_in(model.provider, model.model, model.dimensions):
            return None
        found_at, calibration = self._calibrations.get((team_id, model.id), (-CALIBRATION_SECONDS, None))
        if time.monotonic() - found_at >= CALIBRATION_SECONDS:
            async with self._db.tenant(team_id) as conn:
                calibration = await calibrations.find(conn, team_id, model.id)
            if len(self._calibrations) >= _MAX_CALIBRATIONS:
                self._calibrations.clear()
            self._calibrations[team_id, model.id] = (time.monotonic(), calibration)
        return calibration

    async def _current(self) -> tuple[EmbeddingModel | None, Embedder | None]:
        """The model that search uses and its embedder, looked up again after REFRESH_SECONDS; None for what is missing."""
        if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            async with self._refreshing:
                if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
                    await self._refresh()
        return self._model, self._embedder

    async def _refresh(self) -> None:
        """Read which model is current, and make its embedder when it is another one."""
        model = await self._db.statement_in_tenant(embeddings.CURRENT.first)
        if self._embedder is None or self._model is None or model is None or model.id != self._model.id:
            old, self._embedder = self._embedder, None
            if old is not None:
                await old.close()
            if model is not None:
                try:
                    self._embedder = self._make(settings_of_model(self._settings, model))
                except CmserverError as error:
                    log.warning("search.without_meaning", embedder=model.provider, reason=str(error), pause_seconds=0)
        self._model = model
        self._refreshed_at = time.monotonic()
