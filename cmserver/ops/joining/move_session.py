"""Moves a session with all that belongs to it to another project. One transaction, as the owner of the tables."""

from __future__ import annotations

from psycopg import errors

from cmserver.access import audit
from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.sql import Conn
from cmserver.generation.intake import repository as intake
from cmserver.observations.history import repository as history
from cmserver.ops.joining import repository
from cmserver.ops.joining.refuse import WORKED_ON, find_target, refuse_merged, require_team_key
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session
from cmserver.sessions.read import NO_SUCH, find_session


async def move_session(db: Db, principal: Principal, name: str, into: str) -> Session:
    """Move the session, named by its id or its agent's, and return it. What is sent again under the old project is still known.

    Conflict when a worker is busy with it, when it would leave an isolated project for another one, or when observations of it were
    merged with those of other sessions.
    """
    require_team_key(principal, "move sessions")

    async def act(conn: Conn) -> Session:
        await access.lock_names(conn, principal.team_id)
        session = await find_session(conn, principal, str(found.id))
        target = await find_target(conn, principal, into)
        if session.project_id == target.id:
            return session
        held = await access.project(conn, principal.team_id, session.project_id)
        if held is not None and held.isolated and not target.isolated:
            raise Conflict(
                f"{held.canonical_id} is isolated and {target.canonical_id} is not, so the session would be found from everywhere. "
                f"Isolate {target.canonical_id}, or end the isolation of {held.canonical_id} first."
            )
        for project_id in sorted((session.project_id, target.id)):
            await history.lock_project(conn, project_id)
        if await sessions.lock(conn, principal.team_id, session.id) is None:
            raise NotFound(NO_SUCH)
        if await intake.lock_lane(conn, principal.team_id, session.id):
            raise Conflict(WORKED_ON)
        try:
            merged = await repository.move_session(conn, principal.team_id, session.id, target.id)
        except errors.ForeignKeyViolation as error:
            raise Conflict("Something was drawn from this session and from another one.") from error
        refuse_merged(merged, "Observations of this session were merged with others")
        await audit.record(
            conn,
            principal,
            "session.moved",
            "session",
            session.id,
            project_id=target.id,
            moved_from=str(session.project_id),
        )
        return await find_session(conn, principal, str(session.id))

    async with db.tenant(principal.team_id) as conn:  # not as the owner: one whose words the caller may not read is not there
        found = await find_session(conn, principal, name)
    return await db.in_system(act)
