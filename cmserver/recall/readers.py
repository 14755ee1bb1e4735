"""Who was given an observation: the sessions that were shown it, and who read it."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.audit import repository as audit_log
from cmserver.access.audit.model import ReaderCount
from cmserver.access.model import Principal
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.observations.model import Observation
from cmserver.observations.read import NO_SUCH, find_any_observation
from cmserver.recall.model import ShownReceipt
from cmserver.recall.receipts import repository as receipts

MAX_RECEIPTS = 1_000
"""Receipts of each project, the newest, that are looked through."""
MAX_AUDIT_ROWS = 10_000
"""Rows of the team's audit log, the newest, that are looked through."""
_LIMIT = 20


class Readers(msgspec.Struct, frozen=True, kw_only=True):
    """The newest receipts that show the observation, and who read it; `people` is None for who may not read the audit log."""

    observation: Observation
    shown: list[ShownReceipt]
    people: list[ReaderCount] | None


async def read_readers(conn: Conn, principal: Principal, name: str) -> Readers:
    """Who was given the observation, shown or not. NotFound also for what another project shares with the team."""
    observation = await find_any_observation(conn, principal, name)
    if not principal.sees(observation.project_id):
        raise NotFound(NO_SUCH)
    project_id: UUID | None = principal.project_id if observation.scope == "team" else observation.project_id
    shown = await receipts.that_show(
        conn, principal.team_id, observation.number, project_id=project_id, looked_at=MAX_RECEIPTS, limit=_LIMIT
    )
    people = None
    if principal.may("admin"):
        people = await audit_log.readers(
            conn, principal.team_id, observation.number, project_id=principal.project_id, looked_at=MAX_AUDIT_ROWS, limit=_LIMIT
        )
    return Readers(observation=observation, shown=shown, people=people and principal.named(people))
