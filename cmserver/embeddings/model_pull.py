"""Makes an embedder's server download the model that it lacks, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.logs import get_logger
from cmserver.base.waiting import backoff
from cmserver.embeddings import repository
from cmserver.embeddings.model import EmbeddingModel
from cmserver.models.providers.embedding.model import PullingEmbedder
from cmserver.models.providers.model import ProviderError

log = get_logger(__name__)

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 600.0
STEP_PERCENT = 10
"""So much more is there when progress is logged and stored again."""


class ModelPull:
    """The download of one model. `is_deciding` until it is known to be there, or a download has failed: texts wait for that."""

    def __init__(self, db: Db, embedder: PullingEmbedder, model: EmbeddingModel, pulled: Callable[[], None]) -> None:
        self._db = db
        self._embedder = embedder
        self._model = model
        self._pulled = pulled
        self._logged_error = ""
        self.is_deciding = True

    async def run(self) -> None:
        """Return when the server has the model; until then try again, after growing pauses."""
        try:
            for pause_seconds in backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
                if await self._try():
                    return
                self.is_deciding = False
                await asyncio.sleep(pause_seconds)
        except Exception:
            log.exception("embeddings.failed")
        finally:
            self.is_deciding = False

    async def _try(self) -> bool:
        """Whether the server has the model now."""
        try:
            if await self._embedder.has_model():
                await self._store(None)
                return True
        except (ProviderError, Unavailable):
            return False  # whoever embeds logs it
        self.is_deciding = True
        try:
            await self._pull()
        except Unavailable:
            return False
        except ProviderError as error:
            if str(error) != self._logged_error:
                self._logged_error = str(error)
                log.warning("embedder.pull_failed", model=self._model.model, error=str(error))
            return False
        log.info("embedder.pulled", model=self._model.model)
        self._pulled()
        return True

    async def _pull(self) -> None:
        """Download the model. What is stored of the progress goes with its end, whatever that is."""
        reported_percent = -STEP_PERCENT
        try:
            async with aclosing(self._embedder.pull_model()) as progress:
                async for percent in progress:
                    if percent >= reported_percent + STEP_PERCENT:
                        reported_percent = percent
                        log.info("embedder.pulling", embedder=self._model.provider, model=self._model.model, percent=percent)
                        await self._store(percent)
        finally:
            await self._store(None)

    async def _store(self, percent: int | None) -> None:
        await self._db.in_system(lambda conn: repository.set_pulled_percent(conn, self._model.id, percent))
