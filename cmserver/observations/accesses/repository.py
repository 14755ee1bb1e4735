"""The SQL that counts accesses from the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.observations.accesses.model import Progress

OWNS = {"access_counting"}  # and what the room's other repositories say

# Its row is locked until the transaction ends: of two that count, one waits, and finds nothing left. What wrote at the last look is
# over when the oldest transaction that writes is younger. In a restored database these numbers begin anew, and are lower
# than all of then: nothing of then is running.
PROGRESS = Query(
    Progress,
    """
    INSERT INTO access_counting AS c (only_one) VALUES (true)
    ON CONFLICT (only_one) DO UPDATE SET only_one = true
    RETURNING counted_to, seen_to,
              coalesce(seen_below <= pg_snapshot_xmin(pg_current_snapshot())
                       OR seen_below > pg_snapshot_xmax(pg_current_snapshot()), true) AS is_settled
    """,
)

LOOK = Query(
    int,
    """
    UPDATE access_counting
       SET seen_to = greatest(seen_to, (SELECT max(id) FROM audit_log)), seen_below = pg_snapshot_xmax(pg_current_snapshot())
    """,
)

COUNTED = Query(int, "UPDATE access_counting SET counted_to = %(counted_to)s")

TEAMS = Query(
    UUID,
    """
    SELECT DISTINCT team_id FROM audit_log
     WHERE id > %(after)s AND id <= %(until)s AND action = 'observations.served' AND details ->> 'via' = ANY(%(vias)s)
     ORDER BY team_id
    """,
)

# updated_at says when an observation was changed: being read is no change. No index and no trigger knows these columns.
COUNT = Query(
    int,
    """
    WITH accessed AS (
        SELECT number::bigint AS number, count(*) AS times, max(a.created_at) AS last_at
          FROM audit_log a CROSS JOIN LATERAL jsonb_array_elements_text(a.details -> 'numbers') AS number
         WHERE a.team_id = %(team_id)s AND a.id > %(after)s AND a.id <= %(until)s
           AND a.action = 'observations.served' AND a.details ->> 'via' = ANY(%(vias)s)
         GROUP BY number
    )
    UPDATE observations o
       SET access_count = o.access_count + a.times, last_accessed_at = greatest(o.last_accessed_at, a.last_at)
      FROM accessed a
     WHERE o.number = a.number AND o.team_id = %(team_id)s
    """,
)


async def progress(conn: Conn) -> Progress:
    """How far it is, locked until the transaction ends."""
    return await PROGRESS.one(conn)


async def look(conn: Conn) -> None:
    """Note how far the audit log goes now, and who may still be writing before its end."""
    await LOOK.run(conn)


async def counted(conn: Conn, counted_to: int) -> None:
    await COUNTED.run(conn, counted_to=counted_to)


async def teams(conn: Conn, vias: Sequence[str], *, after: int, until: int) -> list[UUID]:
    """Whose observations were read between the two places by one of these doors."""
    return await TEAMS.all(conn, vias=list(vias), after=after, until=until)


async def count(conn: Conn, team_id: UUID, vias: Sequence[str], *, after: int, until: int) -> int:
    """Add up what was read there; of how many observations. One that is deleted meanwhile is left out."""
    return await COUNT.run(conn, team_id=team_id, vias=list(vias), after=after, until=until)
