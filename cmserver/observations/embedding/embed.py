"""Texts become vectors: claimed, embedded outside of any transaction, and stored where they are still what they were."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.observations.embedding import repository
from cmserver.observations.embedding.model import Claimed, EmbeddingModel, NewVector, document_text
from cmserver.providers.embedding.model import Embedder
from cmserver.providers.model import FailureKind, ProviderError

LEASE_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 600.0
GIVEN_UP_AFTER = 5

ABOUT_THE_TEXT = {FailureKind.REFUSED, FailureKind.CONTEXT_TOO_LONG, FailureKind.UNUSABLE_ANSWER}
"""Failures that one text among many can be the cause of."""

Vectors = list[list[float] | ProviderError]


async def embed_pending(db: Db, embedder: Embedder, model: EmbeddingModel, *, lease_seconds: float = LEASE_SECONDS) -> int:
    """Embed what waits, as much as goes into one call; how many rows were due.

    Whatever becomes of the call is written down, and ProviderError raised when that was the embedder's fault. A text that is
    refused by itself is tried again later, and given up after some attempts; its neighbours are embedded. A worker that dies
    meanwhile leaves rows that are due again when the lease is over; one that is told to stop gives them back.
    """
    most = embedder.most_texts
    due = await db.in_system(lambda conn: repository.claim(conn, model.id, most, lease_seconds))
    if not due:
        return 0
    claimed = [one for one, _ in due]
    try:
        made = await _vectors(embedder, [document_text(text) for _, text in due])
        _check(made, model)
    except ProviderError as error:
        kind = error.kind
        await db.in_system(lambda conn: _fail(conn, model, claimed, kind))
        raise
    except asyncio.CancelledError:
        await db.in_system(lambda conn: repository.give_back(conn, model.id, claimed))
        raise
    await db.in_system(lambda conn: _store(conn, model, claimed, made))
    return len(due)


async def _vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """For each text its vector, or why it has none. ProviderError when not one of several is taken: then it is hardly the texts."""
    made = await _in_halves(embedder, texts)
    refused = [one for one in made if isinstance(one, ProviderError)]
    if len(refused) == len(texts) > 1:
        raise refused[0]
    return made


async def _in_halves(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """What is refused together is tried in halves, so that the one that is refused alone is found soon."""
    try:
        return [*await embedder.embed(texts, "document")]
    except ProviderError as error:
        if error.kind not in ABOUT_THE_TEXT:
            raise
        if len(texts) == 1:
            return [error]
    half = len(texts) // 2
    return [*await _in_halves(embedder, texts[:half]), *await _in_halves(embedder, texts[half:])]


def _check(made: Vectors, model: EmbeddingModel) -> None:
    lengths = {len(one) for one in made if not isinstance(one, ProviderError)}
    if model.dimensions is not None and lengths - {model.dimensions}:
        said = f"its vectors have {max(lengths)} dimensions, and those that are stored have {model.dimensions}"
        raise ProviderError(FailureKind.SETUP_REQUIRED, f"{model.provider} ({model.model}) has changed: {said}.")


async def _store(conn: Conn, model: EmbeddingModel, claimed: Sequence[Claimed], made: Vectors) -> None:
    vectors: list[NewVector] = []
    refused: dict[FailureKind, list[Claimed]] = {}
    for one, vector in zip(claimed, made, strict=True):
        if isinstance(vector, ProviderError):
            refused.setdefault(vector.kind, []).append(one)
        else:
            vectors.append(NewVector(observation_id=one.observation_id, claimed_until=one.claimed_until, embedding=vector))
    if vectors:
        if model.dimensions is None:
            await repository.set_dimensions(conn, model.id, len(vectors[0].embedding))
        await repository.store(conn, model.id, vectors)
    for kind, ones in refused.items():
        await _fail(conn, model, ones, kind, given_up_after=GIVEN_UP_AFTER)


async def _fail(
    conn: Conn, model: EmbeddingModel, claimed: Sequence[Claimed], kind: FailureKind, *, given_up_after: int | None = None
) -> None:
    """Only the kind is kept: an embedder's sentence may quote what it was asked."""
    await repository.fail(
        conn,
        model.id,
        claimed,
        kind.value,
        first_seconds=FIRST_PAUSE_SECONDS,
        longest_seconds=LONGEST_PAUSE_SECONDS,
        given_up_after=given_up_after,
    )
