"""The SQL that counts accesses from the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.base.log_position import LogLook, look_at
from cmserver.base.sql import Conn, Query, RowCount, query


class AuditLook(msgspec.Struct, frozen=True):
    audit: LogLook


LOOK = Query(AuditLook, f"SELECT {look_at('audit_log', 'after')} AS audit")


async def look(conn: Conn, after: int, limit: int) -> LogLook:
    """At up to `limit` rows of the audit log behind that id."""
    return (await LOOK.one(conn, after=after, limit=limit)).audit


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
