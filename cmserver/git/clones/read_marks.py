"""Reads what became of the files of a clone."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.git.clones import repository
from cmserver.git.clones.branches import NO_BRANCH_MARKS, BranchMarks
from cmserver.git.clones.marks import NO_MARKS, CodeMarks
from cmserver.git.clones.model import HASH_CHARS, CommitPlaces


async def read_marks(
    conn: Conn, team_id: UUID, project_id: UUID, clone_id: UUID | None, head: str
) -> tuple[CodeMarks, CommitPlaces]:
    """What commits did to the clone's files, and which of its commits are not merged.

    Nothing for an unknown one, and where `head`, which is checked out now, is not the commit that it told last: it may have gone
    back after it told, without having heard that this was taken.
    """
    clone = await repository.find(conn, team_id, project_id, clone_id) if clone_id is not None else None
    if clone is None or clone.head != head:
        return NO_MARKS, {}
    return CodeMarks(clone.changes) if clone.changes else NO_MARKS, clone.places


async def read_branch_marks(conn: Conn, team_id: UUID, places: CommitPlaces, turn_ids: Sequence[UUID]) -> BranchMarks:
    """Where these turns were said, by what is known of a clone."""
    if not places or not turn_ids:
        return NO_BRANCH_MARKS
    said = await repository.said_at(conn, team_id, turn_ids, list(places), HASH_CHARS)
    return BranchMarks(places, {it.turn_id: it for it in said})
