"""Reads sessions, and audits reads of prompts."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.sessions import repository
from cmserver.sessions.model import Session

NO_SUCH = "There is no such session."


async def find_session(conn: Conn, principal: Principal, name: str) -> Session:
    """The session with that id, or the newest with that id at its agent. NotFound also when the key may not see its project."""
    session_id = named_id(name)
    session = await repository.by_id(conn, principal.team_id, session_id) if session_id else None
    if session is None:
        session = await repository.by_content_id(conn, principal.team_id, name, project_id=principal.project_id)
    if session is None or not principal.sees(session.project_id):
        raise NotFound(NO_SUCH)
    return principal.named([session])[0]


async def audit_prompt_read(conn: Conn, principal: Principal, project_id: UUID | None, count: int) -> None:
    """Audit that `count` prompts of the project, or without one of the team, were read."""
    if count:
        kind, name = ("project", project_id) if project_id else ("team", principal.team_id)
        await audit.record(conn, principal, "prompts.served", kind, name, project_id=project_id, count=count)
