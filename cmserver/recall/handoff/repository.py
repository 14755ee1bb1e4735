"""All SQL on hand-offs, and on what was said on a branch."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn, RowCount, query, unprepared_query
from cmserver.recall.handoff.model import AddressedHandoff

OWNS = {"handoffs"}


# A turn is on the branch on which any of its events was sent: one that makes the branch is on both. Its events are those from its
# prompt's own on to the next prompt's, by the client's clock alone.
@unprepared_query("""
    SELECT t.id
      FROM (SELECT * FROM turns
             WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND agent_id IS NULL AND prompt <> ''
               AND own_line IS DISTINCT FROM ''
               AND (ended_at IS NOT NULL OR reply IS NOT NULL OR files <> '{}' OR checks <> '{}')
             ORDER BY created_at DESC, id DESC LIMIT %(looked_at)s) t
      JOIN agent_events p ON p.id = t.agent_event_id AND p.project_id = t.project_id AND p.team_id = t.team_id
     CROSS JOIN LATERAL (
           SELECT coalesce((SELECT b.occurred_at FROM turns n
                              JOIN agent_events b
                                ON b.id = n.agent_event_id AND b.project_id = n.project_id AND b.team_id = n.team_id
                             WHERE n.server_session_id = t.server_session_id AND n.team_id = t.team_id
                               AND n.prompt_number > t.prompt_number
                             ORDER BY n.prompt_number LIMIT 1), 'infinity') AS before) next
     WHERE EXISTS (SELECT FROM agent_events e
                    WHERE e.project_id = t.project_id AND e.server_session_id = t.server_session_id AND e.team_id = t.team_id
                      AND e.occurred_at >= p.occurred_at AND e.occurred_at < next.before
                      AND e.event_type NOT IN ('session_start', 'session_end') AND e.metadata ->> 'git_branch' = %(branch)s)
     ORDER BY t.created_at DESC, t.id DESC LIMIT %(limit)s
    """)
async def turns_on(conn: Conn, team_id: UUID, project_id: UUID, branch: str, *, looked_at: int, limit: int) -> list[UUID]:
    """The users' newest turns on the branch, newest first, among the newest `looked_at` of the project."""
    ...


@query("""
    SELECT user_id FROM team_members
     WHERE team_id = %(team_id)s AND (account_id = %(account_id)s::uuid OR lower(user_id) = ANY(%(names)s::text[]))
     ORDER BY account_id = %(account_id)s::uuid DESC NULLS LAST, account_id IS NULL, created_at, user_id LIMIT 1
    """)
async def find_member(conn: Conn, team_id: UUID, *, account_id: UUID | None, names: Sequence[str]) -> str | None:
    """The name of the member with that account, or one of these names in lower case."""
    ...


@query("""
    INSERT INTO handoffs (team_id, project_id, to_user, from_user, branch)
    VALUES (%(team_id)s, %(project_id)s, %(to_user)s, %(from_user)s, %(branch)s)
    ON CONFLICT (team_id, to_user, project_id, from_user) DO UPDATE SET branch = excluded.branch, created_at = now()
    """)
async def put(conn: Conn, team_id: UUID, project_id: UUID, *, to_user: str, from_user: str, branch: str) -> None:
    """Keep that it is handed over, in place of what the one had handed to the other in this project."""
    ...


# Of what was handed over in a project that was joined to this one, too. Another session that starts now takes other rows.
@query("""
    WITH due AS (
        SELECT h.to_user, h.project_id, h.from_user
          FROM handoffs h
          JOIN team_members m ON m.team_id = h.team_id AND m.user_id = h.to_user
         WHERE h.team_id = %(team_id)s
           AND (m.account_id = %(account_id)s::uuid OR lower(m.user_id) = ANY(%(names)s::text[]))
           AND (h.project_id = %(project_id)s
                OR h.project_id IN (SELECT id FROM projects WHERE joined_to = %(project_id)s AND team_id = %(team_id)s))
         ORDER BY h.created_at LIMIT %(limit)s FOR UPDATE OF h SKIP LOCKED
    ), taken AS (
        DELETE FROM handoffs h USING due
         WHERE h.team_id = %(team_id)s AND (h.to_user, h.project_id, h.from_user) = (due.to_user, due.project_id, due.from_user)
        RETURNING h.from_user, h.branch, h.created_at
    )
    SELECT from_user, branch, created_at FROM taken ORDER BY created_at
    """)
async def take(
    conn: Conn, team_id: UUID, project_id: UUID, *, account_id: UUID | None, names: Sequence[str], limit: int
) -> list[AddressedHandoff]:
    """What was handed over to the member with that account, or one of these names in lower case, oldest first. It goes by that."""
    ...


@unprepared_query("""
    DELETE FROM handoffs WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete those of the project, or of the whole team; returns how many."""
    ...
