"""The SQL that counts accesses from the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.base.log_position import LogLook, LogPosition, look_at
from cmserver.base.sql import Conn, Query, RowCount, query

OWNS = {"access_counting"}  # and what the room's other repositories say


class AuditLook(msgspec.Struct, frozen=True):
    audit: LogLook


POSITION = Query(
    LogPosition,
    """
    SELECT counted_to AS read_to, seen_to AS fence_id, seen_below::text::bigint AS fence_transaction FROM access_counting
    """,
)

LOOK = Query(AuditLook, f"SELECT {look_at('audit_log', 'after')} AS audit")

KEEP = Query(
    int,
    """
    INSERT INTO access_counting (only_one, counted_to, seen_to, seen_below)
    VALUES (true, %(read_to)s, %(fence_id)s, %(fence_transaction)s::text::xid8)
    ON CONFLICT (only_one) DO UPDATE
       SET counted_to = excluded.counted_to, seen_to = excluded.seen_to, seen_below = excluded.seen_below
    """,
)


@query("SELECT pg_advisory_xact_lock(7237415006)::text")
async def lock(conn: Conn) -> None:
    """Only one transaction counts at a time. No write: the position must not be read by a transaction that has a number."""
    ...


async def position(conn: Conn) -> LogPosition:
    return await POSITION.first(conn) or LogPosition()


async def look(conn: Conn, after: int, limit: int) -> LogLook:
    """At up to `limit` rows of the audit log behind that id."""
    return (await LOOK.one(conn, after=after, limit=limit)).audit


async def keep(conn: Conn, position: LogPosition) -> None:
    await KEEP.run(conn, read_to=position.read_to, fence_id=position.fence_id, fence_transaction=position.fence_transaction)


@query("""
    SELECT DISTINCT team_id FROM audit_log
     WHERE id > %(after)s AND id <= %(until)s AND action = 'observations.served' AND details ->> 'via' = ANY(%(vias)s)
     ORDER BY team_id
    """)
async def teams(conn: Conn, vias: Sequence[str], *, after: int, until: int) -> list[UUID]:
    """The teams whose observations were read between two positions of the audit log, in one of these ways (`via`)."""
    ...


# updated_at says when an observation was changed: being read is no change. No index and no trigger knows these columns.
@query("""
    WITH accessed AS (
        SELECT number::bigint AS number, count(*) AS times, max(a.created_at) AS last_at
          FROM audit_log a CROSS JOIN LATERAL jsonb_array_elements_text(a.details -> 'numbers') AS number
         WHERE a.team_id = %(team_id)s AND a.id > %(after)s AND a.id <= %(until)s
           AND a.action = 'observations.served' AND a.details ->> 'via' = ANY(%(vias)s)
           AND NOT coalesce(a.details -> 'counted' @> number::jsonb, false)
         GROUP BY number
    )
    UPDATE observations o
       SET access_count = o.access_count + a.times, last_accessed_at = greatest(o.last_accessed_at, a.last_at)
      FROM accessed a
     WHERE o.number = a.number AND o.team_id = %(team_id)s
    """)
async def count(conn: Conn, team_id: UUID, vias: Sequence[str], *, after: int, until: int) -> RowCount:
    """Add up what was read there; of how many observations. One that is deleted meanwhile is left out."""
    ...
