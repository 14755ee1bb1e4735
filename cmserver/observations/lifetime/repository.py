"""The SQL that extends and ends the lifetimes of observations."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query, query
from cmserver.observations.model import LIVE_O, OBSERVATION_COLUMNS, Observation

OWNS: set[str] = set()  # what the room's first repository says

PROMOTE_ACCESSES = 5
EXTEND_FACTOR = 0.5
"""Where no policy says it: as many reads, and such a part of the lifetime, as Contextify's server takes."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """An observation whose access was counted, with the lifetime that it had before."""

    id: UUID
    number: int
    is_promoted: bool
    old_ttl_seconds: int
    old_expires_at: datetime


# Of a page that has none that expires nothing is written. The rows are locked in one order, and joined as they were when locked.
EXTEND = Query(
    Access,
    f"""
    WITH accessed AS MATERIALIZED (
        SELECT o.id, o.ttl_seconds, o.expires_at, o.access_count + 1 AS access_count,
               o.access_count + 1 >= coalesce((p.retention ->> 'promoteAccesses')::integer,
                                              (t.retention ->> 'promoteAccesses')::integer,
                                              %(promote_accesses)s) AS is_promoted,
               coalesce((p.retention ->> 'extendFactor')::float8, (t.retention ->> 'extendFactor')::float8,
                        %(extend_factor)s) AS extend_factor
          FROM observations o
          JOIN projects p ON p.id = o.project_id AND p.team_id = o.team_id
          JOIN teams t ON t.id = o.team_id
         WHERE o.id = ANY(%(ids)s) AND o.team_id = %(team_id)s AND o.expires_at IS NOT NULL AND {LIVE_O}
         ORDER BY o.id FOR NO KEY UPDATE OF o
    )
    UPDATE observations o
       SET access_count = a.access_count, last_accessed_at = now(),
           ttl_seconds = CASE WHEN NOT a.is_promoted THEN a.ttl_seconds END,
           expires_at = CASE WHEN NOT a.is_promoted THEN a.expires_at + make_interval(secs => a.extend_factor * a.ttl_seconds) END,
           version = o.version + a.is_promoted::integer
      FROM accessed a
     WHERE o.id = a.id AND o.team_id = %(team_id)s
    RETURNING o.id, o.number, a.is_promoted, a.ttl_seconds AS old_ttl_seconds, a.expires_at AS old_expires_at
    """,
)


async def extend(conn: Conn, team_id: UUID, ids: Collection[UUID]) -> list[Access]:
    """Count an access of those that expire, and extend each life by a part of its lifetime, or make the observation permanent."""
    return await EXTEND.all(
        conn,
        team_id=team_id,
        ids=list(ids),
        promote_accesses=PROMOTE_ACCESSES,
        extend_factor=EXTEND_FACTOR,
    )


# Nothing of what it says changes, so updated_at stays.
@query(f"""
    UPDATE observations SET ttl_seconds = NULL, expires_at = NULL, version = version + 1
     WHERE id = %(observation_id)s AND team_id = %(team_id)s
    RETURNING {OBSERVATION_COLUMNS}
    """)
async def promote(conn: Conn, team_id: UUID, observation_id: UUID) -> Observation:
    """Make it permanent, as its next version."""
    ...


# It is shown no longer, and nothing of what it says changes: no version. Undoing brings it back for good.
@query(f"""
    UPDATE observations
       SET expires_at = now(), ttl_seconds = coalesce(ttl_seconds, greatest(1, extract(epoch FROM now() - created_at)::integer)),
           taken_at = CASE WHEN %(is_taken)s THEN now() END
     WHERE id = %(observation_id)s AND team_id = %(team_id)s
    RETURNING {OBSERVATION_COLUMNS}
    """)
async def expire(conn: Conn, team_id: UUID, observation_id: UUID, *, is_taken: bool) -> Observation:
    """End its time now; of what `is_taken` by its person the team is told at no other time either."""
    ...
