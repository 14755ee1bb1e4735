"""Projects and teams go for good, with their keys and names and all that refers to them. The audit log stays."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn, Query

OWNS: set[str] = set()  # the room's other repositories say it

# Nothing new can refer to what is locked so, and whoever has just written something that does is waited for.
LOCK_TEAM = Query(UUID, "SELECT id FROM teams WHERE id = %(team_id)s FOR UPDATE")

LOCK_PROJECTS = Query(
    int,
    """
    WITH locked AS MATERIALIZED (
        SELECT id FROM projects
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR id = %(project_id)s::uuid) ORDER BY id FOR UPDATE
    )
    SELECT count(*) FROM locked
    """,
    prepare=False,
)

# With their buckets, which no reference ties to them.
DELETE_KEYS = Query(
    int,
    """
    WITH gone AS (
        DELETE FROM api_keys
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
        RETURNING id
    ), buckets AS (
        DELETE FROM rate_limits r USING gone WHERE r.id = gone.id AND r.team_id = %(team_id)s
    )
    SELECT count(*) FROM gone
    """,
    prepare=False,
)

DELETE_PROJECTS = Query(
    int,
    """
    DELETE FROM projects WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR id = %(project_id)s::uuid)
    """,
    prepare=False,
)

DELETE_TEAM = Query(int, "DELETE FROM teams WHERE id = %(team_id)s")


async def lock_team(conn: Conn, team_id: UUID) -> bool:
    """Against everything else in the team; whether it is there."""
    return await LOCK_TEAM.first(conn, team_id=team_id) is not None


async def lock_projects(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """The project, or all of the team without one, against everything else in them; how many."""
    return await LOCK_PROJECTS.one(conn, team_id=team_id, project_id=project_id)


async def delete_keys(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """Those that are bound to the project, or all of the team without one; how many."""
    return await DELETE_KEYS.one(conn, team_id=team_id, project_id=project_id)


async def delete_projects(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """The project, or all of the team without one; how many."""
    return await DELETE_PROJECTS.run(conn, team_id=team_id, project_id=project_id)


async def delete_team(conn: Conn, team_id: UUID) -> None:
    await DELETE_TEAM.run(conn, team_id=team_id)
