"""SQL on clones."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.git.clones.model import Clone, CommitPlaces, CommittedChanges, SaidAt

OWNS = {"clones"}
_DAYS_KEPT = 90

KEEP = Query(
    int,
    """
    INSERT INTO clones (project_id, team_id, clone_id, head, changes, places)
    VALUES (%(project_id)s, %(team_id)s, %(clone_id)s, %(head)s, %(changes)s, %(places)s)
    ON CONFLICT (project_id, clone_id) DO UPDATE SET head = excluded.head, changes = excluded.changes, places = excluded.places,
                                                     updated_at = now()
    """,
)


@query("""
    SELECT clone_id, head, changes, places, updated_at FROM clones
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND clone_id = %(clone_id)s
    """)
async def find(conn: Conn, team_id: UUID, project_id: UUID, clone_id: UUID) -> Clone | None: ...


@query("""
    SELECT clone_id, head, changes, places, updated_at FROM clones
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND clone_id = %(clone_id)s FOR UPDATE
    """)
async def lock(conn: Conn, team_id: UUID, project_id: UUID, clone_id: UUID) -> Clone | None: ...


async def keep(
    conn: Conn, team_id: UUID, project_id: UUID, clone_id: UUID, head: str, changes: CommittedChanges, places: CommitPlaces
) -> None:
    await KEEP.run(
        conn,
        team_id=team_id,
        project_id=project_id,
        clone_id=clone_id,
        head=head,
        changes=Jsonb(changes),
        places=Jsonb(places),
    )


# The events of a turn are those from its prompt's own on to the next prompt's, by the client's clock alone; a session that begins
# again or ends may stand elsewhere. The last one knows of a commit that the turn made.
@query("""
    SELECT t.id AS turn_id, coalesce(e.metadata ->> 'git_branch', '') AS branch, e.metadata ->> 'git_commit' AS commit
      FROM turns t
      JOIN agent_events p ON p.id = t.agent_event_id AND p.project_id = t.project_id AND p.team_id = t.team_id
     CROSS JOIN LATERAL (
           SELECT coalesce((SELECT b.occurred_at FROM turns n
                              JOIN agent_events b
                                ON b.id = n.agent_event_id AND b.project_id = n.project_id AND b.team_id = n.team_id
                             WHERE n.server_session_id = t.server_session_id AND n.team_id = t.team_id
                               AND n.prompt_number > t.prompt_number
                             ORDER BY n.prompt_number LIMIT 1), 'infinity') AS before) next
     CROSS JOIN LATERAL (
           SELECT metadata FROM agent_events
            WHERE project_id = t.project_id AND server_session_id = t.server_session_id AND team_id = t.team_id
              AND occurred_at >= p.occurred_at AND occurred_at < next.before AND event_type NOT IN ('session_start', 'session_end')
            ORDER BY occurred_at DESC, received_at DESC LIMIT 1) e
     WHERE t.id = ANY(%(turn_ids)s) AND t.team_id = %(team_id)s AND t.prompt_number IS NOT NULL
       AND left(e.metadata ->> 'git_commit', %(chars)s) = ANY(%(commits)s)
       AND NOT EXISTS (
           SELECT FROM agent_events o
            WHERE o.project_id = t.project_id AND o.server_session_id = t.server_session_id AND o.team_id = t.team_id
              AND o.occurred_at >= p.occurred_at AND o.occurred_at < next.before
              AND o.event_type NOT IN ('session_start', 'session_end')
              AND coalesce(o.metadata ->> 'git_branch', '') <> coalesce(e.metadata ->> 'git_branch', ''))
    """)
async def said_at(conn: Conn, team_id: UUID, turn_ids: Sequence[UUID], commits: Sequence[str], chars: int) -> list[SaidAt]:
    """Those of the turns that ended at one of these commits, by so many digits, and were on one branch from their prompt on."""
    ...


@query("""
    DELETE FROM clones
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND updated_at < now() - make_interval(days => %(days)s)
    """)
async def _drop(conn: Conn, team_id: UUID, project_id: UUID, days: int) -> None: ...


async def drop_old(conn: Conn, team_id: UUID, project_id: UUID) -> None:
    """Forget clones of the project whose code has not changed for 90 days."""
    await _drop(conn, team_id, project_id, _DAYS_KEPT)


@unprepared_query("""
    DELETE FROM clones WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Forget all clones of the project, or without one of the team."""
    ...
