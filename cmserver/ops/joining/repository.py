"""The SQL of joining: functions of the database move the rows, whatever room owns them."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query

OWNS = {"project_joined_rows"}


class JoinedProject(msgspec.Struct, frozen=True, kw_only=True):
    """A joined project that has rows again: those that were written while it was joined."""

    id: UUID
    team_id: UUID
    target_id: UUID


JOIN = Query(UUID, "SELECT %(project_id)s::uuid FROM join_project(%(project_id)s, %(target_id)s, %(team_id)s)")

SEPARATE = Query(int, "SELECT unnest(separate_project(%(project_id)s, %(team_id)s))")

HAS_JOINED = Query(bool, "SELECT EXISTS (SELECT FROM projects WHERE joined_to = %(project_id)s AND team_id = %(team_id)s)")

IS_WORKED_ON = Query(
    bool,
    """
    SELECT EXISTS (SELECT FROM generation_lanes
                    WHERE project_id = ANY (%(project_ids)s) AND team_id = %(team_id)s AND claim IS NOT NULL)
    """,
)

STRAYS = Query(
    JoinedProject,
    """
    SELECT p.id, p.team_id, t.id AS target_id
      FROM projects p JOIN projects t ON t.id = p.joined_to AND t.team_id = p.team_id
     WHERE (EXISTS (SELECT FROM server_sessions s WHERE s.project_id = p.id AND s.team_id = p.team_id)
            OR EXISTS (SELECT FROM agent_events e WHERE e.project_id = p.id AND e.team_id = p.team_id)
            OR EXISTS (SELECT FROM observations o WHERE o.project_id = p.id AND o.team_id = p.team_id))
     ORDER BY p.id
    """,
)


async def join(conn: Conn, team_id: UUID, project_id: UUID, target_id: UUID) -> None:
    """Give the target all rows of the project, and mark that one as joined."""
    await JOIN.one(conn, team_id=team_id, project_id=project_id, target_id=target_id)


async def separate(conn: Conn, team_id: UUID, project_id: UUID) -> list[int]:
    """Give a joined project its rows back; the numbers of observations that were merged across stop it, and nothing is done."""
    return await SEPARATE.all(conn, team_id=team_id, project_id=project_id)


async def has_joined(conn: Conn, team_id: UUID, project_id: UUID) -> bool:
    """Whether another project was joined to this one."""
    return await HAS_JOINED.one(conn, team_id=team_id, project_id=project_id)


async def is_worked_on(conn: Conn, team_id: UUID, *project_ids: UUID) -> bool:
    """Whether a worker holds jobs of the projects at this moment."""
    return await IS_WORKED_ON.one(conn, team_id=team_id, project_ids=list(project_ids))


async def strays(conn: Conn) -> list[JoinedProject]:
    """The joined projects of all teams that have rows again."""
    return await STRAYS.all(conn)
