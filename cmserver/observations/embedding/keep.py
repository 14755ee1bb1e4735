"""The worker's two loops over embeddings: whatever waits is embedded, and large teams have their index."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from time import monotonic

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.errors import Invalid, Unavailable
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.observations.embedding import repository
from cmserver.observations.embedding.choose import InUse, given_of, settle, switch
from cmserver.observations.embedding.embed import ABOUT_THE_TEXT, embed_pending
from cmserver.observations.embedding.indexes import ensure_index
from cmserver.observations.embedding.look import why_not
from cmserver.observations.embedding.model import EmbeddingModel
from cmserver.providers.embedding import registry
from cmserver.providers.embedding.model import Embedder, EmbedderGiven
from cmserver.providers.model import ProviderError

log: FilteringBoundLogger = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
BREATH_SECONDS = 0.02
"""Between one call and the next while a backlog is embedded: generation has the same processor and database."""
LONGEST_OUTAGE_PAUSE_SECONDS = 60.0
IN_USE_SECONDS = 60.0
"""After a vain attempt to change the models: all who write wait for as long as that takes, and a dump takes hours."""
INDEX_SECONDS = 600.0
ROWS_AT_A_TIME = 2_000
"""So many older observations are let wait, or embeddings taken away, in one transaction; a new one never waits behind more."""


class Outage(msgspec.Struct):
    """Since an embedder does not answer. It is asked again at `until`."""

    failures: int = 0
    until: float = 0.0


class Keeper:
    """Embeds what waits, for every model that is wanted. One per worker; several share the work."""

    def __init__(self, db: Db, settings: Settings, make: Callable[[EmbedderGiven], Embedder] = registry.make) -> None:
        self._db = db
        self._settings = settings
        self._make = make
        self._is_settled = False
        self._in_use_until = 0.0
        self._embedders: dict[int, Embedder | None] = {}
        self._outages: dict[int, Outage] = {}
        self._said: set[str] = set()
        self.switched = asyncio.Event()
        """Set when another model has become the current one."""

    async def run(self, woken: asyncio.Event, stop: asyncio.Event) -> None:
        """Until `stop`. What is in hand then is given back."""
        chosen = registry.chosen(self._settings)
        if chosen is not None and (why := why_not(chosen)):
            self._say_missing(why)
        try:
            while not stop.is_set():
                woken.clear()
                more = await _unless(stop, asyncio.create_task(self._round_or_not()))
                await _first(stop, seconds=BREATH_SECONDS) if more else await _first(stop, woken, seconds=POLL_SECONDS)
        finally:
            for embedder in filter(None, self._embedders.values()):
                with contextlib.suppress(Exception):
                    await embedder.close()

    async def _round_or_not(self) -> bool:
        try:
            return await self.round()
        except Unavailable:
            return False  # the database is away
        except Exception:
            log.exception("embeddings.failed")
            return False

    async def round(self) -> bool:
        """One step for each model; whether there is more to do at once."""
        if not self._is_settled and await self._changed(self._settle):
            self._is_settled = True
        async with self._db.system() as conn:
            models = await repository.models(conn)
        more = False
        for model in models:
            if model.state == "retired":
                more |= await self._clear(model)
                continue
            advanced = await self._advance(model)
            if model.state == "building" and not advanced and await self._changed(lambda model=model: switch(self._db, model)):
                self.switched.set()
                advanced = True
            more |= advanced
        return more

    async def _settle(self) -> bool:
        await settle(self._db, self._settings)
        return True

    async def _changed(self, act: Callable[[], Awaitable[bool]]) -> bool:
        """What `act` answers; False while others keep the models from being changed."""
        if monotonic() < self._in_use_until:
            return False
        try:
            return await act()
        except InUse:
            self._in_use_until = monotonic() + IN_USE_SECONDS
            return False

    async def _clear(self, model: EmbeddingModel) -> bool:
        embedder = self._embedders.pop(model.id, None)
        if embedder is not None:
            await embedder.close()
        self._outages.pop(model.id, None)
        return await self._db.in_system(lambda conn: repository.clear(conn, model.id, ROWS_AT_A_TIME))

    async def _advance(self, model: EmbeddingModel) -> bool:
        more = not model.is_backfilled and await self._db.in_system(lambda conn: _backfill(conn, model))
        embedder = self._embedder(model)
        outage = self._outages.get(model.id)
        if embedder is None or (outage is not None and monotonic() < outage.until):
            return False
        try:
            count = await embed_pending(self._db, embedder, model, lease_seconds=self._lease_seconds)
        except ProviderError as error:
            self._failed(model, error)
            return False
        if count and outage is not None:
            await self._recovered(model)
        return more or count == embedder.most_texts

    @property
    def _lease_seconds(self) -> float:
        return self._settings.lease_seconds + self._settings.provider_timeout_seconds

    def _embedder(self, model: EmbeddingModel) -> Embedder | None:
        """None when it cannot be made here; that is said once."""
        if model.id not in self._embedders:
            try:
                self._embedders[model.id] = self._make(given_of(self._settings, model))
            except Invalid as error:
                self._say_missing(str(error))
                self._embedders[model.id] = None
        return self._embedders[model.id]

    def _say_missing(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            log.warning("embedder.missing", hint=why)

    def _failed(self, model: EmbeddingModel, error: ProviderError) -> None:
        outage = self._outages.setdefault(model.id, Outage())
        pause = max(min(2.0**outage.failures, LONGEST_OUTAGE_PAUSE_SECONDS), error.retry_after_seconds or 0.0)
        outage.failures += 1
        outage.until = monotonic() + pause
        if outage.failures == 1:
            said = None if error.kind in ABOUT_THE_TEXT else str(error)  # a refusal may quote what was asked
            log.warning("embedder.unavailable", embedder=model.provider, model=model.model, reason=error.kind.value, error=said)

    async def _recovered(self, model: EmbeddingModel) -> None:
        del self._outages[model.id]
        await self._db.in_system(lambda conn: repository.hurry(conn, model.id))
        log.info("embedder.recovered", embedder=model.provider, model=model.model)


async def _backfill(conn: Conn, model: EmbeddingModel) -> bool:
    """Whether more are left to be let wait, once what waits already is done."""
    if await repository.is_ahead(conn, model.id, ROWS_AT_A_TIME):
        return True
    return await repository.backfill(conn, model.id, ROWS_AT_A_TIME)


async def keep_indexed(db: Db, soon: asyncio.Event, stop: asyncio.Event) -> None:
    """Look every ten minutes, and when another model is used, whether a team needs an index."""
    while not stop.is_set():
        soon.clear()
        await _unless(stop, asyncio.create_task(_indexed_or_not(db)))
        await _first(stop, soon, seconds=INDEX_SECONDS)


async def _indexed_or_not(db: Db) -> bool:
    try:
        await ensure_index(db)
    except Unavailable:
        pass  # the database is away
    except Exception:
        log.exception("embeddings.not_indexed")
    return False


async def _unless(stop: asyncio.Event, act: asyncio.Task[bool]) -> bool:
    """What `act` answers; it is broken off when the process is to stop, and then it is False."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({act, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not act.done():
            act.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await act
        return False
    finally:
        stopping.cancel()
        act.cancel()


async def _first(*events: asyncio.Event, seconds: float) -> None:
    """Return when one of them is set, or the time is over."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
