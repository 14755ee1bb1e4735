"""Approximate indexes, for teams whose vectors are too many to be looked at one by one.

By lists (ivfflat) and not by a graph (hnsw): queries are a few words and documents many, so a query is far from all documents, and
in a graph the way to the nearest of them ends early. See `bin/bench search`.
"""

from __future__ import annotations

import contextlib
import time
from uuid import UUID

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.observations.embedding import repository
from cmserver.observations.embedding.model import EmbeddingModel

log: FilteringBoundLogger = structlog.get_logger(__name__)

MANY_VECTORS = 60_000
"""So many of one team are compared one by one in less time than people notice, and no filter loses any."""


MOST_LISTS = 1_000
_OUTGROWN = 2
"""An index whose team would be given so many times as many lists by now is made anew."""


def lists_for(vectors: int) -> int:
    """As many lists as each has vectors, up to a bound that the memory for making them sets."""
    return max(1, min(round(vectors**0.5), MOST_LISTS))


async def lists(conn: Conn, team_id: UUID, model_id: int) -> int | None:
    """Into how many lists the team's approximate index of that model's vectors puts them; None without one that can be used."""
    return await repository.lists(conn, team_id, model_id)


async def ensure_index(db: Db, *, more_than: int = MANY_VECTORS) -> None:
    """Each team with more vectors of the current model than that has an index of them; what is of no more use goes.

    A team keeps its index until it has half as many. Takes minutes where one is made; nobody waits for it meanwhile.
    """
    async with db.system_statement() as conn:
        if not await repository.is_possible(conn) or not await repository.try_to_index(conn):
            return
        try:
            await _ensure(conn, more_than)
        finally:
            with contextlib.suppress(Exception):  # of a connection that is broken nothing is left
                await repository.end_indexing(conn)


async def _ensure(conn: Conn, more_than: int) -> None:
    model = await repository.current(conn)
    sizes: dict[UUID, int] = {}
    if model is not None and model.dimensions is not None:
        sizes = {one.team_id: one.vectors for one in await repository.large_teams(conn, model.id, more_than // 2)}
    there = {one.name: one for one in await repository.indexes(conn)}
    keep = {repository.index_name(team_id, model.id) for team_id in sizes} if model else set[str]()
    for name, index in there.items():
        if name not in keep or not index.is_valid:
            await repository.drop_index(conn, name)
            log.info("embeddings.index_dropped", index=name)
    for team_id, vectors in sizes.items():
        if model is None or vectors <= more_than:
            continue
        known = there.get(repository.index_name(team_id, model.id))
        if known is not None and known.is_valid and known.lists * _OUTGROWN <= lists_for(vectors):
            await repository.drop_index(conn, known.name)
            known = None
        if known is None or not known.is_valid:
            await _create(conn, team_id, model, vectors)


async def _create(conn: Conn, team_id: UUID, model: EmbeddingModel, vectors: int) -> None:
    began = time.monotonic()
    await repository.create_index(conn, team_id, model.id, model.dimensions or 0, lists_for(vectors))
    seconds = round(time.monotonic() - began, 1)
    log.info("embeddings.indexed", team_id=str(team_id), model_id=model.id, vectors=vectors, seconds=seconds)
