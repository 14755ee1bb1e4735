"""Embeds queries with the model that the stored vectors are from, before any transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.errors import CmserverError
from cmserver.base.settings import Settings
from cmserver.observations.embedding import repository as embeddings
from cmserver.observations.embedding.model import EmbeddingModel
from cmserver.observations.embedding.model_choice import settings_of_model
from cmserver.providers.embedding import registry
from cmserver.providers.embedding.model import Embedder, EmbedderSettings
from cmserver.providers.model import FailureKind, ProviderError
from cmserver.recall.search.model import QueryVector

log: FilteringBoundLogger = structlog.get_logger(__name__)

ANSWER_SECONDS = 1.0
"""A search does not wait longer for its vector."""
PAUSE_SECONDS = 15.0
"""After a failure the embedder is not called for so long."""
REFRESH_SECONDS = 5.0
"""How often the current model is looked up."""
MAX_QUERY_CHARS = 2_000
"""The rest of a longer query is not embedded."""
_QUERY_FAILURES = {FailureKind.REFUSED, FailureKind.CONTEXT_TOO_LONG}
"""Failures that are about one query: the embedder is called for the next one."""


class QueryEmbedder:
    """Embeds queries; never raises: without a vector search goes by words."""

    def __init__(self, settings: Settings, db: Db, make: Callable[[EmbedderSettings], Embedder] = registry.make) -> None:
        self._settings = settings
        self._db = db
        self._make = make
        self._refreshing = asyncio.Lock()
        self._refreshed_at = -REFRESH_SECONDS
        self._paused_until = 0.0
        self._model: EmbeddingModel | None = None
        self._embedder: Embedder | None = None

    async def embed(self, query: str, *, provider: str | None = None) -> QueryVector | None:
        """The query's vector by the current model; None when there is no model, or its embedder does not answer in time.

        With `provider`, only an embedder of that name is called.
        """
        model, embedder = await self._current()
        if model is None or embedder is None or model.dimensions is None or not query.strip():
            return None
        if provider is not None and model.provider != provider:
            return None
        if time.monotonic() < self._paused_until:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                vectors = await embedder.embed([query[:MAX_QUERY_CHARS]], "query")
        except (ProviderError, TimeoutError, RuntimeError) as error:  # httpx says so of a client that was closed meanwhile
            pause = 0.0 if isinstance(error, ProviderError) and error.kind in _QUERY_FAILURES else PAUSE_SECONDS
            self._paused_until = time.monotonic() + pause
            other = "timeout" if isinstance(error, TimeoutError) else "closed"
            kind = error.kind.value if isinstance(error, ProviderError) else other
            log.warning("search.without_meaning", embedder=model.provider, reason=kind, pause_seconds=pause)
            return None
        if [len(vector) for vector in vectors] != [model.dimensions]:
            return None
        text = "[" + ",".join(map(repr, vectors[0])) + "]"
        return QueryVector(model_id=model.id, provider=model.provider, dimensions=model.dimensions, vector=text)

    async def _current(self) -> tuple[EmbeddingModel | None, Embedder | None]:
        """The model that search uses and its embedder, looked up again after REFRESH_SECONDS; None for what is missing."""
        if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            async with self._refreshing:
                if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
                    await self._refresh()
        return self._model, self._embedder

    async def _refresh(self) -> None:
        """Read which model is current, and make its embedder when it is another one."""
        model = await self._db.statement_in_tenant(embeddings.current)
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
