"""Where a query stands among meanings: asked of the embedder that the stored vectors are from, before any transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.errors import CmserverError
from cmserver.base.settings import Settings
from cmserver.observations.embedding.choose import current, given_of
from cmserver.observations.embedding.model import EmbeddingModel
from cmserver.providers.embedding import registry
from cmserver.providers.embedding.model import Embedder, EmbedderGiven
from cmserver.providers.model import FailureKind, ProviderError
from cmserver.recall.search.model import Sought

log: FilteringBoundLogger = structlog.get_logger(__name__)

ANSWER_SECONDS = 1.0
"""An embedder that takes longer is done without: somebody waits for the search."""
PAUSE_SECONDS = 15.0
"""For so long after a failure no search waits for it."""
LOOK_SECONDS = 5.0
"""How long another model that has become the current one may go unnoticed."""
QUERY_MOST = 2_000
"""Of a longer query only so many characters have a meaning."""
_ABOUT_THE_QUERY = {FailureKind.REFUSED, FailureKind.CONTEXT_TOO_LONG}
"""Failures after which nobody else's query is done without its meaning."""


class Meaning:
    """Embeds queries. One for each process; never raises: without an answer search goes by words."""

    def __init__(self, settings: Settings, db: Db, make: Callable[[EmbedderGiven], Embedder] = registry.make) -> None:
        self._settings = settings
        self._db = db
        self._make = make
        self._looking = asyncio.Lock()
        self._looked_at = -LOOK_SECONDS
        self._paused_until = 0.0
        self._model: EmbeddingModel | None = None
        self._embedder: Embedder | None = None

    async def of(self, query: str) -> Sought | None:
        """The query's vector by the current model; None when there is no model, or its embedder does not answer soon."""
        model, embedder = await self._current()
        if model is None or embedder is None or model.dimensions is None or not query.strip():
            return None
        if time.monotonic() < self._paused_until:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                vectors = await embedder.embed([query[:QUERY_MOST]], "query")
        except (ProviderError, TimeoutError, RuntimeError) as error:  # httpx says so of a client that was closed meanwhile
            pause = 0.0 if isinstance(error, ProviderError) and error.kind in _ABOUT_THE_QUERY else PAUSE_SECONDS
            self._paused_until = time.monotonic() + pause
            other = "timeout" if isinstance(error, TimeoutError) else "closed"
            kind = error.kind.value if isinstance(error, ProviderError) else other
            log.warning("search.without_meaning", embedder=model.provider, reason=kind, pause_seconds=pause)
            return None
        if [len(vector) for vector in vectors] != [model.dimensions]:
            return None
        text = "[" + ",".join(map(repr, vectors[0])) + "]"
        return Sought(model_id=model.id, dimensions=model.dimensions, vector=text)

    async def _current(self) -> tuple[EmbeddingModel | None, Embedder | None]:
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            async with self._looking:
                if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                    await self._look()
        return self._model, self._embedder

    async def _look(self) -> None:
        model = await self._db.statement_in_tenant(current)
        if self._embedder is None or self._model is None or model is None or model.id != self._model.id:
            old, self._embedder = self._embedder, None
            if old is not None:
                await old.close()
            if model is not None:
                try:
                    self._embedder = self._make(given_of(self._settings, model))
                except CmserverError as error:
                    log.warning("search.without_meaning", embedder=model.provider, reason=str(error), pause_seconds=0)
        self._model = model
        self._looked_at = time.monotonic()
