"""Reads a log table in the order of its ids, although its rows become visible in the order of their commits.

An id is given before the commit, so a lower one may become visible after a higher one. Behind a gap nothing is read until the gap
is filled, or can no longer be filled: when every transaction has ended that ran when an id behind the gap was visible. Of those,
one may hold the missing id; later ones get higher ids.
"""

from __future__ import annotations

from typing import LiteralString

import msgspec

from cmserver.base.sql import Conn, query

_LOOK = """
    (SELECT jsonb_build_object(
                'last_id', coalesce(max(id), %(AFTER)s::bigint),
                'gaps', coalesce(jsonb_agg(jsonb_build_array(before, id - 1) ORDER BY id) FILTER (WHERE id > before + 1), '[]'),
                'oldest_running', pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
                'next_transaction', pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
       FROM (SELECT id, lag(id, 1, %(AFTER)s::bigint) OVER (ORDER BY id) AS before
               FROM (SELECT id FROM LOG WHERE id > %(AFTER)s ORDER BY id LIMIT %(limit)s) page) rows)
"""


def look_at(log: LiteralString, after: LiteralString) -> LiteralString:
    """SQL of one column, a LogLook at up to `limit` rows of the table `log`. `after` names the parameter with the position's id."""
    return _LOOK.replace("LOG", log).replace("AFTER", after)


class LogLook(msgspec.Struct, frozen=True, kw_only=True):
    """What one snapshot shows of a log behind a position."""

    last_id: int
    """The last id of the rows read; the position's id when there are none."""
    gaps: list[tuple[int, int]]
    """The id before each gap, and the last missing id."""
    oldest_running: int
    """Every transaction with a lower number has ended."""
    next_transaction: int


class LogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far a log is read, and what closes the gap behind that: the end of every transaction below `fence_transaction`.

    Then all that exists up to `fence_id` is visible. (A transaction whose first write is the row itself has, for an instant, an id
    and no number yet; it could be missed.)
    """

    read_to: int = 0
    fence_id: int = 0
    fence_transaction: int | None = None

    def advance(self, look: LogLook) -> LogPosition:
        """The position at the first open gap of the look, or at its end."""
        is_closed = self.fence_transaction is not None and (
            look.oldest_running >= self.fence_transaction
            or look.next_transaction < self.fence_transaction  # in a restored database numbers start anew
        )
        start = max(self.read_to, self.fence_id) if is_closed else self.read_to
        read_to = next((max(before, start) for before, end in look.gaps if end > start), max(look.last_id, start))
        if is_closed or self.fence_transaction is None:
            return LogPosition(read_to=read_to)
        return LogPosition(read_to=read_to, fence_id=self.fence_id, fence_transaction=self.fence_transaction)


async def advance(conn: Conn, position: LogPosition, look: LogLook) -> LogPosition:
    """The position after this look; at a gap, fenced by the transactions that run now. `conn` has written nothing yet."""
    reached = position.advance(look)
    if reached.fence_transaction is None and reached.read_to < look.last_id:
        return LogPosition(read_to=reached.read_to, fence_id=look.last_id, fence_transaction=await new_transaction(conn))
    return reached


# Not pg_snapshot_xmax: that follows the last transaction that ENDED, and one that still runs may have a higher number.
@query("SELECT pg_current_xact_id()::text::bigint")
async def new_transaction(conn: Conn) -> int:
    """A number above that of every transaction that has written something by now."""
    ...
