"""The SQL of joining: functions of the database move the rows, whatever room owns them."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, query

OWNS = {"project_joined_rows"}


class JoinedProject(msgspec.Struct, frozen=True, kw_only=True):
    """A joined project that has rows again: those that were written while it was joined."""

    id: UUID
    team_id: UUID
    target_id: UUID


@query("SELECT %(project_id)s::uuid FROM join_project(%(project_id)s, %(target_id)s, %(team_id)s)")
async def join(conn: Conn, team_id: UUID, project_id: UUID, target_id: UUID) -> None:
    """Give the target all rows of the project, and mark that one as joined."""
    ...


@query("SELECT unnest(separate_project(%(project_id)s, %(team_id)s))")
async def separate(conn: Conn, team_id: UUID, project_id: UUID) -> list[int]:
    """Give a joined project its rows back; the numbers of observations that were merged across stop it, and nothing is done."""
    ...


@query("SELECT unnest(move_session(%(session_id)s, %(target_id)s, %(team_id)s))")
async def move_session(conn: Conn, team_id: UUID, session_id: UUID, target_id: UUID) -> list[int]:
    """Give the session with its rows to another project; the numbers of observations that were merged with others stop it."""
    ...


@query("SELECT EXISTS (SELECT FROM projects WHERE joined_to = %(project_id)s AND team_id = %(team_id)s)")
async def has_joined(conn: Conn, team_id: UUID, project_id: UUID) -> bool:
    """Whether another project was joined to this one."""
    ...


@query("""
    SELECT EXISTS (SELECT FROM generation_lanes
                    WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND claim IS NOT NULL)
    """)
async def is_worked_on(conn: Conn, team_id: UUID, project_id: UUID) -> bool:
    """Whether a worker holds jobs of the project at this moment."""
    ...


# Who started which of its sessions, and in which folder. Sessions of before the root was kept say the folder that their agent was
# started in, which is the root or below it. When one was started is told by the server's clock, not by its client's.
@query("""
    WITH started AS (
        SELECT s.created_at, coalesce(a.actor_id = ANY(%(actor_ids)s), false) AS is_own,
               CASE WHEN s.metadata ->> 'root' IS NOT NULL THEN s.metadata ->> 'root' = %(folder)s
                    ELSE coalesce(starts_with((s.metadata ->> 'cwd') || '/', %(folder)s || '/'), false) END AS is_there
          FROM server_sessions s
          LEFT JOIN audit_log a ON a.team_id = s.team_id AND a.action = 'session.started' AND a.resource_id = s.id::text
         WHERE s.team_id = %(team_id)s AND s.project_id = %(project_id)s
    )
    SELECT coalesce(bool_or(is_own AND is_there) AND (bool_and(is_own)
                    OR (NOT %(is_folder)s AND bool_or(is_own AND is_there AND created_at < now() - interval '1 day'))), false)
      FROM started
    """)
async def may_name(conn: Conn, team_id: UUID, project_id: UUID, *, folder: str, is_folder: bool, actor_ids: list[str]) -> bool:
    """Whether the actor of these names has worked on the project in that folder, and either nobody else has worked on it, or that
    is a day ago.

    The latter not for a project that is called by a folder (`is_folder`): the same path elsewhere is another folder.
    """
    ...


@query("""
    SELECT p.archived_at IS NULL AND NOT p.isolated AND p.generation_policy = '{}' AND p.retention = '{}'
           AND NOT EXISTS (SELECT FROM api_keys k WHERE k.project_id = p.id AND k.team_id = p.team_id)
           AND NOT EXISTS (SELECT FROM projects j WHERE j.joined_to = p.id AND j.team_id = p.team_id)
           AND NOT EXISTS (SELECT FROM agent_events e WHERE e.project_id = p.id AND e.team_id = p.team_id)
           AND NOT EXISTS (SELECT FROM observations o WHERE o.project_id = p.id AND o.team_id = p.team_id)
           AND NOT EXISTS (SELECT FROM turns u WHERE u.project_id = p.id AND u.team_id = p.team_id)
           AND NOT EXISTS (SELECT FROM entities n WHERE n.project_id = p.id AND n.team_id = p.team_id AND n.found_by = 'people')
      FROM projects p WHERE p.id = %(project_id)s AND p.team_id = %(team_id)s
    """)
async def is_untouched(conn: Conn, team_id: UUID, project_id: UUID) -> bool:
    """Whether the project has no memory, no settings and no keys, and no other one is joined to it."""
    ...


@query("""
    SELECT p.id, p.team_id, t.id AS target_id
      FROM projects p JOIN projects t ON t.id = p.joined_to AND t.team_id = p.team_id
     WHERE (EXISTS (SELECT FROM server_sessions s WHERE s.project_id = p.id AND s.team_id = p.team_id)
            OR EXISTS (SELECT FROM agent_events e WHERE e.project_id = p.id AND e.team_id = p.team_id)
            OR EXISTS (SELECT FROM observations o WHERE o.project_id = p.id AND o.team_id = p.team_id)
            OR EXISTS (SELECT FROM observation_generation_jobs j
                        WHERE j.project_id = p.id AND j.team_id = p.team_id AND j.phase = 'open'))
     ORDER BY p.id
    """)
async def strays(conn: Conn) -> list[JoinedProject]:
    """The joined projects of all teams that have rows again."""
    ...
