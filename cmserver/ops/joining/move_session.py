"""Moves a session with all that belongs to it to another project. One transaction, as the owner of the tables."""

from __future__ import annotations

from psycopg import errors

from cmserver.access import audit
from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import find
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Forbidden, Invalid, Issue, NotFound
from cmserver.base.sql import Conn
from cmserver.generation import repository as generation
from cmserver.observations.history import repository as history
from cmserver.ops.joining import repository
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session
from cmserver.sessions.read import NO_SUCH, find_session


async def move_session(db: Db, principal: Principal, name: str, into: str) -> Session:
    """Move the session, named by its id or its agent's, and return it. What is sent again under the old project is still known.

    Conflict when a worker is busy with it, or when observations of it were merged with those of other sessions.
    """
    if principal.project_id is not None:
        raise Forbidden("This key is bound to a project. Use a key of the whole team to move sessions.")

    async def act(conn: Conn) -> Session:
        await access.lock_names(conn, principal.team_id)
        session = await find_session(conn, principal, name)
        target = await find(conn, principal, into)
        if target is None:
            message = "Project not found."
            raise Invalid(message, [Issue("$.into", message)])
        if session.project_id == target.id:
            return session
        for project_id in sorted((session.project_id, target.id)):
            await history.lock_project(conn, project_id)
        if await sessions.lock(conn, principal.team_id, session.id) is None:
            raise NotFound(NO_SUCH)
        if await generation.lock_lane(conn, principal.team_id, session.id):
            raise Conflict("Observations are being made of its events at this moment. Try again in a minute.")
        try:
            merged = await repository.move_session(conn, principal.team_id, session.id, target.id)
        except errors.ForeignKeyViolation as error:
            raise Conflict("Something was drawn from this session and from another one.") from error
        if merged:
            numbers = ", ".join(map(str, merged[:20]))
            raise Conflict(f"Observations of this session were merged with others. Undo that first: {numbers}.")
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

    return await db.in_system(act)
