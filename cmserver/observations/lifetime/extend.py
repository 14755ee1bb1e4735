"""Extends the lives of observations that are read, and makes those permanent that are read often."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.sql import Conn
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import SYSTEM, Change
from cmserver.observations.lifetime import repository
from cmserver.observations.model import Observation


async def extend_lives(conn: Conn, principal: Principal, observations: Sequence[Observation]) -> list[int]:
    """Count an access of those that expire, and extend each life by a part of its lifetime; returns their numbers.

    One statement for a page, and none for a page of permanent ones. Read as often as the policy says, one becomes permanent. The
    audit row of the read must name the numbers as counted, or the count of the audit log counts them again.
    """
    ids = [observation.id for observation in observations if observation.expires_at is not None]
    accesses = await repository.extend(conn, principal.team_id, ids) if ids else []
    promoted = {access.id: access for access in accesses if access.is_promoted}
    for after in await history.lock(conn, principal.team_id, promoted.keys()) if promoted else []:
        access = promoted[after.id]
        before = msgspec.structs.replace(after, ttl_seconds=access.old_ttl_seconds, expires_at=access.old_expires_at)
        await record_promotion(conn, principal, before, after, performed_by=SYSTEM)
    return [access.number for access in accesses]


async def record_promotion(conn: Conn, principal: Principal, before: Observation, after: Observation, *, performed_by: str) -> None:
    """Keep the version, and the audit row, of an observation that became permanent."""
    await history.add(conn, before, after, Change(action="promoted", performed_by=performed_by))
    await audit.record(
        conn,
        principal,
        "observation.promoted",
        "observation",
        after.id,
        project_id=after.project_id,
        number=after.number,
        performed_by=performed_by,
    )
