"""Approximate indexes, for teams whose vectors are too many to be looked at one by one.

By lists (ivfflat) and not by a graph (hnsw): queries are a few words and documents many, so a query is far from all documents, and
in a graph the way to the nearest of them ends early. See `bin/bench search`.
"""

from __future__ import annotations

import contextlib
import time
from uuid import UUID

from cmserver.base.db import Db
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.embeddings import repository
from cmserver.embeddings.model import EmbeddingModel

log = get_logger(__name__)

MANY_VECTORS = 20_000
"""Up to this many vectors of a team are compared one by one: that is fast enough, and exact."""

MOST_LISTS = 1_000
_OUTGROWN = 2
"""An index is made anew when its team has grown so much that it needs this many times as many lists."""


def lists_for(vectors: int) -> int:
    """The number of lists of an index: the square root of its vectors, at most MOST_LISTS (making it takes memory)."""
    return max(1, min(round(vectors**0.5), MOST_LISTS))


async def ensure_index(db: Db, *, more_than: int = MANY_VECTORS) -> None:
    """Make the missing indexes of teams with more than `more_than` vectors of the current model, and drop useless ones.

    A team keeps its index until it has half as many. Takes minutes where one is made; nobody waits for it meanwhile.
    """
    async with db.owner_session() as conn:
        if not await repository.IS_POSSIBLE.one(conn) or not await repository.try_to_index(conn):
            return
        try:
            await _ensure(conn, more_than)
        finally:
            with contextlib.suppress(Exception):  # of a connection that is broken nothing is left
                await repository.end_indexing(conn)


async def _ensure(conn: Conn, more_than: int) -> None:
    """Drop the indexes that are broken, outgrown or no longer needed, and make the missing ones."""
    model = await repository.CURRENT.first(conn)
    sizes: dict[UUID, int] = {}
    if model is not None and model.dimensions is not None:
        sizes = {row.team_id: row.vectors for row in await repository.large_teams(conn, model.id, more_than // 2)}
    there = {row.name: row for row in await repository.INDEXES.all(conn)}
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
