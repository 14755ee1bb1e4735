"""A session is found by the id its agent gave it, or made."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.errors import Conflict
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.sessions import repository
from cmserver.sessions.model import NewSession, Session


async def start(conn: Conn, team_id: UUID, project_id: UUID, new: NewSession) -> tuple[Session, bool]:
    """The session and whether it is new. A session that had ended is open again."""
    session, is_new = await find_or_make(conn, team_id, project_id, new)
    return (await repository.resume(conn, team_id, session.id)) or session, is_new


async def find_or_make(conn: Conn, team_id: UUID, project_id: UUID, new: NewSession) -> tuple[Session, bool]:
    """Like `start`, but a session that has ended stays so: events may arrive after its end."""
    named = new.external_session_id or new.content_session_id
    found = await repository.by_external_id(conn, team_id, project_id, named, new.platform_source) if named else None
    if found is not None:
        return found, False
    made = await repository.insert(conn, new_id(), team_id, project_id, new)
    if made is not None:
        return made, True
    found = await repository.by_external_id(conn, team_id, project_id, named or "", new.platform_source)
    if found is None:
        raise Conflict("Another session has the same id at its agent.")
    return found, False
