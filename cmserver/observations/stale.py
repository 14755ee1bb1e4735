"""Marks observations that do not hold any more."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.observations import repository
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import Change
from cmserver.observations.model import Observation, StaleMark


async def mark_stale(conn: Conn, principal: Principal, observation_id: UUID, version: int, mark: StaleMark) -> Observation | None:
    """Mark the observation of that version, as its next one; None when it is another by now, is marked, or is not shown."""
    locked = await repository.lock(conn, principal.team_id, observation_id)
    shown = await repository.by_ids(conn, principal.team_id, [observation_id])
    if locked is None or not shown or locked.version != version or locked.stale is not None:
        return None
    marked = await repository.correct(conn, principal.team_id, msgspec.structs.replace(locked, stale=mark))
    await history.add(conn, locked, marked, Change(action="corrected", performed_by=principal.actor_id))
    await audit.record(
        conn,
        principal,
        "observation.marked_stale",
        "observation",
        marked.id,
        project_id=marked.project_id,
        number=marked.number,
        reason=mark.reason,
    )
    await announce.notify_stream(conn)
    return marked
