"""A session is found by the id its agent gave it, or made."""

from __future__ import annotations

from uuid import UUID

from psycopg import errors

from cmserver.base.errors import Conflict, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.sessions import repository
from cmserver.sessions.model import NewSession, Session, Started


async def start(conn: Conn, team_id: UUID, project_id: UUID, new: NewSession) -> tuple[Session, Started]:
    """The session, and what became of it. One that had ended is open again."""
    session, is_new = await find_or_make(conn, team_id, project_id, new)
    if is_new:
        return session, "new"
    resumed = await repository.resume(conn, team_id, session.id)
    if resumed is not None:
        return resumed, "resumed"
    await repository.seen(conn, team_id, session.id)
    return session, "known"


async def find_or_make(conn: Conn, team_id: UUID, project_id: UUID, new: NewSession) -> tuple[Session, bool]:
    """Like `start`, but a session that has ended stays so: events may arrive after its end."""
    named = new.external_session_id or new.content_session_id
    found = await repository.by_external_id(conn, team_id, project_id, named, new.platform_source) if named else None
    if found is not None:
        return found, False
    try:
        made = await repository.insert(conn, new_id(), team_id, project_id, new)
    except errors.ForeignKeyViolation as error:  # deleted since it was named
        raise NotFound("There is no such project.") from error
    if made is not None:
        return made, True
    found = await repository.by_external_id(conn, team_id, project_id, named or "", new.platform_source)
    if found is None:
        raise Conflict("Another session has the same id at its agent.")
    return found, False
