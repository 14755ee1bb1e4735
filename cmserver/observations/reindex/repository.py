"""SQL that computes the search columns of observations anew."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.observations.model import Place

OWNS: set[str] = set()  # the room's other repository says it

# A trigger keeps the search columns: they are computed anew when a column that they are made of is set, be it to what it was.
REINDEX = Query(
    Place,
    """
    WITH chunk AS (
        SELECT id FROM observations
         WHERE team_id = %(team_id)s AND project_id = %(project_id)s
           AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
           AND (%(observation_id)s::uuid IS NULL OR id = %(observation_id)s::uuid)
           AND (%(after)s::timestamptz IS NULL OR (created_at, id) > (%(after)s::timestamptz, %(after_id)s::uuid))
         ORDER BY created_at, id LIMIT %(limit)s FOR NO KEY UPDATE
    )
    UPDATE observations o SET content = o.content FROM chunk WHERE o.id = chunk.id AND o.team_id = %(team_id)s
    RETURNING o.created_at, o.id
    """,
    prepare=False,
)


async def reindex(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    *,
    session_id: UUID | None,
    observation_id: UUID | None,
    after: Place | None,
    limit: int,
) -> list[Place]:
    """Of the next observations of the project (or of one session, or only of one); which ones."""
    return await REINDEX.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        session_id=session_id,
        observation_id=observation_id,
        after=after and after.created_at,
        after_id=after and after.id,
        limit=limit,
    )
