"""The worker's two loops over embeddings: whatever waits is embedded, sentences of turns too, and large teams have their index.

Texts are claimed, embedded outside of any transaction, and their vectors stored where they are still what they were.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

import msgspec

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.waiting import run_periodically, run_unless_stopped, wait_any
from cmserver.embeddings import repository
from cmserver.embeddings.indexes import ensure_index
from cmserver.embeddings.model import ClaimedEmbedding, EmbeddingModel, NewVector
from cmserver.embeddings.model_choice import ModelsInUseError, apply_choice, settings_of_model, switch
from cmserver.embeddings.model_pull import ModelPull
from cmserver.embeddings.status import explain_missing
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings, PullingEmbedder
from cmserver.models.providers.model import MAX_WAIT_SECONDS, FailureKind, ProviderError

log = get_logger(__name__)

POLL_SECONDS = 1.0
"""While an embedder is away, a model is changed, or a round failed."""
QUIET_POLL_SECONDS = 60.0
"""Else notifications tell of what is to be embedded; texts that were refused, and what a dead worker had, are found by looking."""
GATHER_SECONDS = 1.0
"""After a round with nothing left: each event that comes in wakes, and what comes meanwhile is embedded together."""
BREATH_SECONDS = 0.02
"""Between one call and the next while a backlog is embedded: generation has the same processor and database."""
LONGEST_OUTAGE_PAUSE_SECONDS = 60.0
IN_USE_SECONDS = 60.0
"""After a vain attempt to change the models: all who write wait for as long as that takes, and a dump takes hours."""
INDEX_SECONDS = 600.0
REPORT_SECONDS = 60.0
ROWS_AT_A_TIME = 2_000
"""How many older texts are queued, or embeddings deleted, in a transaction; a new one never waits behind more."""

LEASE_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 600.0
GIVEN_UP_AFTER = 5

ABOUT_THE_TEXT = {FailureKind.REFUSED, FailureKind.CONTEXT_TOO_LONG, FailureKind.UNUSABLE_ANSWER}
"""Failures that one text among many can be the cause of."""

Vectors = list[list[float] | ProviderError]


class Outage(msgspec.Struct):
    """Since an embedder does not answer. It is asked again at `until`."""

    failures: int = 0
    until: float = 0.0


class EmbeddingWorker:
    """Embeds what waits, for every model that is wanted. One per worker; several share the work."""

    def __init__(self, db: Db, settings: Settings, make: Callable[[EmbedderSettings], Embedder] = embedders.make) -> None:
        self._db = db
        self._settings = settings
        self._make = make
        self._is_settled = False
        self._is_quiet = False
        self._in_use_until = 0.0
        self._embedders: dict[int, Embedder | None] = {}
        self._outages: dict[int, Outage] = {}
        self._pulls: dict[int, tuple[ModelPull, asyncio.Task[None]]] = {}
        self._backlogs: dict[int, tuple[float, int, float]] = {}
        """By model: when its backlog began, how many were embedded since, and when that was logged."""
        self._hints: set[str] = set()
        self.switched = asyncio.Event()
        """Set when another model has become the current one."""

    async def run(self, woken: asyncio.Event, stop: asyncio.Event) -> None:
        """Until `stop`. What is in hand then is given back."""
        chosen = embedders.embedder_settings(self._settings)
        if chosen is not None and (why := explain_missing(chosen)):
            self._log_missing(why)
        try:
            await run_periodically(
                lambda: self._round_and_gather(stop),
                stop,
                seconds=lambda: QUIET_POLL_SECONDS if self._is_quiet else POLL_SECONDS,
                busy_seconds=BREATH_SECONDS,
                wake=woken,
                log_failure=lambda error: log.error("embeddings.failed", exc_info=error),
            )
        finally:
            for model_id in list(self._pulls):
                await self._end_pull(model_id)
            for embedder in filter(None, self._embedders.values()):
                with contextlib.suppress(Exception):
                    await embedder.close()

    async def _round_and_gather(self, stop: asyncio.Event) -> bool:
        has_more = await run_unless_stopped(stop, self.round()) is True
        if not has_more:
            await wait_any(stop, timeout_seconds=GATHER_SECONDS)
        return has_more

    async def round(self) -> bool:
        """Do one step for each model; returns whether there is more to do at once."""
        self._is_quiet = False
        if not self._is_settled and await self._changed(self._settle):
            self._is_settled = True
        async with self._db.system() as conn:
            models = await repository.MODELS.all(conn)
        current = next((model for model in models if model.state == "current"), None)
        more = await self._write_sentences(current)
        for model in models:
            if model.state == "retired":
                more |= await self._clear(model)
                continue
            advanced = await self._advance(model)
            if model.state == "building" and not advanced and await self._changed(lambda model=model: switch(self._db, model)):
                self.switched.set()
                advanced = True
            more |= advanced
        is_changing = any(model.state != "current" for model in models) or any(not task.done() for _, task in self._pulls.values())
        self._is_quiet = self._is_settled and not is_changing and not self._outages
        return more

    async def _write_sentences(self, model: EmbeddingModel | None) -> bool:
        """Write the sentences of turns that have ended; returns whether there are more."""
        if model is None:
            return await write_due_sentences(self._db, None, 0)
        outage = self._outages.get(model.id)
        is_out = outage is not None and monotonic() < outage.until
        try:
            return await write_due_sentences(self._db, None if is_out else self._embedder(model), model.id)
        except ProviderError as error:
            self._failed(model, error)
            return False

    async def _settle(self) -> bool:
        await apply_choice(self._db, self._settings)
        return True

    async def _changed(self, act: Callable[[], Awaitable[bool]]) -> bool:
        """Run `act`, which changes the models, and return its answer; False while another transaction prevents the change."""
        if monotonic() < self._in_use_until:
            return False
        try:
            return await act()
        except ModelsInUseError:
            self._in_use_until = monotonic() + IN_USE_SECONDS
            return False

    async def _clear(self, model: EmbeddingModel) -> bool:
        """Delete some rows of a retired model; returns whether more are left."""
        await self._end_pull(model.id)
        embedder = self._embedders.pop(model.id, None)
        if embedder is not None:
            await embedder.close()
        self._outages.pop(model.id, None)
        return await self._db.in_system(lambda conn: repository.clear(conn, model.id, ROWS_AT_A_TIME))

    async def _advance(self, model: EmbeddingModel) -> bool:
        """Queue older texts for the model and embed what is due; returns whether more is left to do at once."""
        more = not model.is_backfilled and await self._db.in_system(lambda conn: _backfill(conn, model))
        embedder = self._embedder(model)
        outage = self._outages.get(model.id)
        if embedder is None or self._is_pull_deciding(embedder, model) or (outage is not None and monotonic() < outage.until):
            return False
        try:
            count = await embed_pending(self._db, embedder, model, lease_seconds=self._lease_seconds)
        except ProviderError as error:
            self._failed(model, error)
            return False
        if count and outage is not None:
            await self._recovered(model)
        more = more or count == embedder.max_texts
        self._report(model, count, more=more)
        return more

    def _report(self, model: EmbeddingModel, count: int, *, more: bool) -> None:
        """Log once a minute how many were embedded since a backlog began."""
        began_at, embedded, shown_at = self._backlogs.get(model.id, (monotonic(), 0, monotonic()))
        embedded += count
        if monotonic() - shown_at >= REPORT_SECONDS:
            shown_at = monotonic()
            seconds = round(shown_at - began_at)
            log.info("embeddings.progress", embedder=model.provider, model=model.model, embedded=embedded, seconds=seconds)
        self._backlogs[model.id] = (began_at, embedded, shown_at)
        if not more:
            del self._backlogs[model.id]

    def _is_pull_deciding(self, embedder: Embedder, model: EmbeddingModel) -> bool:
        """Whether the embedder may lack the model, which it downloads in the background; looks once for each model."""
        if not isinstance(embedder, PullingEmbedder):
            return False
        if model.id not in self._pulls:
            pull = ModelPull(self._db, embedder, model, lambda: self._end_outage(model.id))
            self._pulls[model.id] = (pull, asyncio.create_task(pull.run()))
        return self._pulls[model.id][0].is_deciding

    async def _end_pull(self, model_id: int) -> None:
        _, task = self._pulls.pop(model_id, (None, None))
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _end_outage(self, model_id: int) -> None:
        if outage := self._outages.get(model_id):
            outage.until = 0.0

    @property
    def _lease_seconds(self) -> float:
        return self._settings.lease_seconds + self._settings.provider_timeout_seconds

    def _embedder(self, model: EmbeddingModel) -> Embedder | None:
        """The embedder of the model; None when this process cannot make it, which is logged once."""
        if model.id not in self._embedders:
            try:
                self._embedders[model.id] = self._make(settings_of_model(self._settings, model))
            except Invalid as error:
                self._log_missing(str(error))
                self._embedders[model.id] = None
        return self._embedders[model.id]

    def _log_missing(self, why: str) -> None:
        if why not in self._hints:
            self._hints.add(why)
            log.warning("embedder.missing", hint=why)

    def _failed(self, model: EmbeddingModel, error: ProviderError) -> None:
        outage = self._outages.setdefault(model.id, Outage())
        asked_for = min(error.retry_after_seconds or 0.0, MAX_WAIT_SECONDS)
        pause = max(min(2.0**outage.failures, LONGEST_OUTAGE_PAUSE_SECONDS), asked_for)
        outage.failures += 1
        outage.until = monotonic() + pause
        if outage.failures == 1:
            text = None if error.kind in ABOUT_THE_TEXT else str(error)  # a refusal may quote what was asked
            log.warning("embedder.unavailable", embedder=model.provider, model=model.model, reason=error.kind.value, error=text)

    async def _recovered(self, model: EmbeddingModel) -> None:
        del self._outages[model.id]
        await self._db.in_system(lambda conn: repository.hurry(conn, model.id))
        log.info("embedder.recovered", embedder=model.provider, model=model.model)


async def _backfill(conn: Conn, model: EmbeddingModel) -> bool:
    """Queue the next older texts unless enough wait already; returns whether more are left."""
    if await repository.is_ahead(conn, model.id, ROWS_AT_A_TIME):
        return True
    return await repository.backfill(conn, model.id, ROWS_AT_A_TIME)


async def keep_indexed(db: Db, soon: asyncio.Event, stop: asyncio.Event) -> None:
    """Make missing vector indexes, every ten minutes and when another model is used, until `stop`."""
    await run_periodically(
        lambda: run_unless_stopped(stop, ensure_index(db)),
        stop,
        seconds=INDEX_SECONDS,
        wake=soon,
        log_failure=lambda error: log.error("embeddings.not_indexed", exc_info=error),
    )


async def embed_pending(db: Db, embedder: Embedder, model: EmbeddingModel, *, lease_seconds: float = LEASE_SECONDS) -> int:
    """Embed what waits, as much as goes into one call; how many rows were due.

    Whatever becomes of the call is written down, and ProviderError raised when that was the embedder's fault. A text that is
    refused by itself is tried again later, and given up after some attempts; its neighbours are embedded. A worker that dies
    meanwhile leaves rows that are due again when the lease is over; one that is told to stop gives them back.
    """
    max_texts = embedder.max_texts
    due = await db.in_system(lambda conn: repository.claim(conn, model.id, max_texts, lease_seconds))
    if not due:
        return 0
    claimed = [row for row, _ in due]
    try:
        vectors_made = await _make_vectors(embedder, [text for _, text in due])
        _check_lengths(vectors_made, model)
    except ProviderError as error:
        kind = error.kind
        await db.in_system(lambda conn: _fail(conn, model, claimed, kind))
        raise
    except asyncio.CancelledError:
        await db.in_system(lambda conn: repository.give_back(conn, model.id, claimed))
        raise
    await db.in_system(lambda conn: _store(conn, model, claimed, vectors_made))
    return len(due)


async def _make_vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """The vector of each text, or the error that refused it. Raises it when all of several were refused: it is not the texts."""
    vectors_made = await _embed_in_halves(embedder, texts)
    refused = [row for row in vectors_made if isinstance(row, ProviderError)]
    if len(refused) == len(texts) > 1:
        raise refused[0]
    return vectors_made


async def _embed_in_halves(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Embed the texts; when the embedder refuses them together, each half alone, down to the single text that it refuses."""
    try:
        return [*await embedder.embed(texts, "document")]
    except ProviderError as error:
        if error.kind not in ABOUT_THE_TEXT:
            raise
        if len(texts) == 1:
            return [error]
    half = len(texts) // 2
    return [*await _embed_in_halves(embedder, texts[:half]), *await _embed_in_halves(embedder, texts[half:])]


def _check_lengths(vectors_made: Vectors, model: EmbeddingModel) -> None:
    lengths = {len(row) for row in vectors_made if not isinstance(row, ProviderError)}
    if model.dimensions is not None and lengths - {model.dimensions}:
        problem = f"its vectors have {max(lengths)} dimensions, and those that are stored have {model.dimensions}"
        raise ProviderError(FailureKind.SETUP_REQUIRED, f"{model.provider} ({model.model}) has changed: {problem}.")


async def _store(conn: Conn, model: EmbeddingModel, claimed: Sequence[ClaimedEmbedding], vectors_made: Vectors) -> None:
    """Store the vectors, and the failures of the texts that were refused; some refusals are final."""
    vectors: list[NewVector] = []
    refused: dict[FailureKind, list[ClaimedEmbedding]] = {}
    for row, vector in zip(claimed, vectors_made, strict=True):
        if isinstance(vector, ProviderError):
            refused.setdefault(vector.kind, []).append(row)
        else:
            vectors.append(NewVector(id=row.id, claimed_until=row.claimed_until, embedding=vector))
    if vectors:
        if model.dimensions is None:
            await repository.set_dimensions(conn, model.id, len(vectors[0].embedding))
        await repository.store(conn, model.id, vectors)
    for kind, rows in refused.items():
        await _fail(conn, model, rows, kind, given_up_after=GIVEN_UP_AFTER)


async def _fail(
    conn: Conn, model: EmbeddingModel, claimed: Sequence[ClaimedEmbedding], kind: FailureKind, *, given_up_after: int | None = None
) -> None:
    """Store why the embeddings failed, as the kind only: an embedder's sentence may quote the text."""
    await repository.fail(
        conn,
        model.id,
        claimed,
        kind.value,
        first_seconds=FIRST_PAUSE_SECONDS,
        longest_seconds=LONGEST_PAUSE_SECONDS,
        given_up_after=given_up_after,
    )
