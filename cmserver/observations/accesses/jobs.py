"""Counts how often the texts of observations are read, and when last, from the audit log.

Each row of the log is counted once: its counting and the position behind it commit together. A row that commits late holds up what
comes after it, and is not lost (`base.log_position`). What expires is counted when it is read, because its fifth read makes it
permanent: such a row of the log names the numbers under `counted`, and they are left out here.
"""

from __future__ import annotations

from cmserver.base.db import Db
from cmserver.base.follow import follow
from cmserver.base.log_position import LogPosition, advance
from cmserver.base.sql import Conn
from cmserver.observations.accesses import repository
from cmserver.observations.accesses.model import COUNTED, VIAS

_ROWS = 10_000
_ROUNDS = 50
"""Rows of the log in a transaction, and transactions in a run; the next run continues."""


async def count_accesses(db: Db) -> None:
    """Count what was read since the last run. Of two that run at once, one leaves it to the other."""
    for _ in range(_ROUNDS):
        if await db.in_system(_count_some):
            return


async def _count_some(conn: Conn) -> bool:
    """Whether all is counted that can be."""
    is_all = True

    async def count(before: LogPosition) -> LogPosition:
        nonlocal is_all
        after = await advance(conn, before, await repository.look(conn, before.read_to, _ROWS))
        if after.read_to > before.read_to:
            for team_id in await repository.teams(conn, VIAS, after=before.read_to, until=after.read_to):
                await repository.count(conn, team_id, VIAS, after=before.read_to, until=after.read_to)
        is_all = after.read_to < before.read_to + _ROWS
        return after

    await follow(conn, COUNTED, count)
    return is_all
