"""Takes a transaction to another time: all that is read in it from then on is read as it was."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.observations.past import repository
from cmserver.observations.past.model import Moment, check_moment

VIA = "past"
"""How the audit log calls a read of another time. It extends no life."""


async def travel(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, moment: Moment) -> None:
    """Read these projects, or without any the team, as at the moment, until the transaction ends. Nothing is to be changed in it.

    Invalid for a moment in the future, or before anything was recorded there. What was erased since is nowhere.
    """
    check_moment(moment, await repository.clock(conn, team_id, project_ids))
    await repository.enter(conn, moment.as_of, moment.known_at)
