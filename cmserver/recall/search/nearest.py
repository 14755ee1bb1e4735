"""What is near a query in meaning: exactly in a scope of usual size, by an index in a larger one."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.observations.embedding import indexes
from cmserver.recall.search import repository
from cmserver.recall.search.model import Asked, Near, Sought
from cmserver.recall.search.repository import COUNTED_MOST

EXACT_MOST = COUNTED_MOST - 1
"""In a scope of so many documents, with what the team shares, all are compared: that is quicker there than the index."""
_PROBED = 5
"""Of the index's lists the nearest fifth is looked at: what `bin/bench search` finds by that is nearly all."""


async def nearest(conn: Conn, team_id: UUID, asked: Asked, sought: Sought, limit: int, documents: int) -> list[Near]:
    """The nearest of the scope, which has so many documents, that the filters leave.

    What filters leave of a single project, or a session has, is too little of the team's index: it would find less than there is,
    and later. Where the index does not find as many as are asked for, all are compared, too.
    """
    lists = None
    filters = asked.filters
    is_much = not filters.are_any or (asked.project_ids is None and filters.session_id is None)
    if documents > EXACT_MOST and is_much:
        lists = await indexes.lists(conn, team_id, sought.model_id)
    if lists is not None:
        found = await repository.nearest_by_index(conn, team_id, asked.project_ids, sought, filters, probes(lists), limit)
        if len(found) == limit:
            return found
    return await repository.nearest(conn, team_id, asked.project_ids, sought, filters, limit)


def probes(lists: int) -> int:
    """How many of an index's lists are looked at for a query."""
    return -(-lists // _PROBED)
