"""How often the texts of observations are read, and when last. Counted from the audit log: reading writes nothing more for it.

Each row of the log is counted once: its counting and the place behind it commit together. None is lost that commits late: rows get
their ids before they commit, so the log is only counted up to where an earlier look found it to end, and only when whoever was
writing at that look is done. A count is therefore a run or two of the job late, and waits while a transaction of then still writes.
"""

from __future__ import annotations

from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.observations.accesses import repository

VIAS = ("get", "batch", "event", "search.full", "context.search", "timeline.full", "prompt", "file")
"""The doors by which a text is read whole, or told because it belongs to what is being done. Lists, lines of an index and what a
session is told at its start are no accesses: they show what is there, whether anybody needs it or not.
"""

_ROWS = 10_000
_ROUNDS = 50
"""As many rows of the log in one transaction, and so many of these in one run: the next one goes on."""


async def count_accesses(db: Db) -> None:
    """Count what has been read since the last time. Two may run at once; one of them has nothing to do."""
    for _ in range(_ROUNDS):
        if await db.in_system(_count_some):
            return


async def _count_some(conn: Conn) -> bool:
    """Whether all is counted that can be."""
    at = await repository.progress(conn)
    if not at.is_settled:
        return True
    until = min(at.seen_to, at.counted_to + _ROWS)
    for team_id in await repository.teams(conn, VIAS, after=at.counted_to, until=until):
        await repository.count(conn, team_id, VIAS, after=at.counted_to, until=until)
    await repository.counted(conn, until)
    if until < at.seen_to:
        return False
    await repository.look(conn)
    return True
