"""Reads what became of the files of a clone."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.git.clones import repository
from cmserver.git.clones.marks import NO_MARKS, CodeMarks


async def read_marks(conn: Conn, team_id: UUID, project_id: UUID, clone_id: UUID | None) -> CodeMarks:
    """What commits did to the clone's files; nothing for an unknown one."""
    clone = await repository.find(conn, team_id, project_id, clone_id) if clone_id is not None else None
    return CodeMarks(clone.changes) if clone is not None and clone.changes else NO_MARKS
