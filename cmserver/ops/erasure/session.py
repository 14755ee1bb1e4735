"""Deletes one session with all that was drawn from it. One transaction, as the owner of the tables."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.generation.intake import repository as intake
from cmserver.observations import repository as observations
from cmserver.observations.write import record_deleted
from cmserver.ops.erasure import repository
from cmserver.ops.erasure.repository import SessionRows
from cmserver.ops.joining.refuse import refuse_merged
from cmserver.sessions import repository as sessions
from cmserver.sessions.read import NO_SUCH, find_session


async def delete_session(db: Db, principal: Principal, name: str, *, dry_run: bool) -> tuple[UUID, SessionRows]:
    """Delete the session, by its id or its agent's; counts of rows. Conflict when its observations were merged with others'."""

    async def act(conn: Conn) -> tuple[UUID, SessionRows]:
        session = await find_session(conn, principal, str(found.id))
        if dry_run:
            return session.id, await repository.count_session(conn, principal.team_id, session.id)
        if await sessions.lock(conn, principal.team_id, session.id) is None:
            raise NotFound(NO_SUCH)
        await intake.lock_lane(conn, principal.team_id, session.id)
        derived = await observations.derived_from(conn, principal.team_id, session_id=session.id)
        rows = await repository.erase_session(conn, principal.team_id, session.id)
        refuse_merged(rows.merged, "Observations of this session were merged with others")
        counts = {kind: count for kind, count in msgspec.structs.asdict(rows).items() if kind != "merged"}
        await audit.record(conn, principal, "session.deleted", "session", session.id, project_id=session.project_id, counts=counts)
        await record_deleted(conn, principal, derived)
        return session.id, rows

    async with db.tenant(principal.team_id) as conn:  # not as the owner: one whose words the caller may not read is not there
        found = await find_session(conn, principal, name)
    return await db.in_system(act)
