"""SQL on clones."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.git.clones.model import Clone, CommittedChanges

OWNS = {"clones"}
_DAYS_KEPT = 90

KEEP = Query(
    int,
    """
    INSERT INTO clones (project_id, team_id, clone_id, head, changes)
    VALUES (%(project_id)s, %(team_id)s, %(clone_id)s, %(head)s, %(changes)s)
    ON CONFLICT (project_id, clone_id) DO UPDATE SET head = excluded.head, changes = excluded.changes, updated_at = now()
    """,
)


@query("""
    SELECT clone_id, head, changes, updated_at FROM clones
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND clone_id = %(clone_id)s
    """)
async def find(conn: Conn, team_id: UUID, project_id: UUID, clone_id: UUID) -> Clone | None: ...


@query("""
    SELECT clone_id, head, changes, updated_at FROM clones
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND clone_id = %(clone_id)s FOR UPDATE
    """)
async def lock(conn: Conn, team_id: UUID, project_id: UUID, clone_id: UUID) -> Clone | None: ...


async def keep(conn: Conn, team_id: UUID, project_id: UUID, clone_id: UUID, head: str, changes: CommittedChanges) -> None:
    await KEEP.run(conn, team_id=team_id, project_id=project_id, clone_id=clone_id, head=head, changes=Jsonb(changes))


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
