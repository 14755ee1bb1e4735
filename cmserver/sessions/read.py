"""Looking at sessions: a page of them, and one of them. Whoever reads prompts leaves an audit row."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.errors import NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.sessions import repository
from cmserver.sessions.model import Session

NO_SUCH = "There is no such session."


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions, newest first, and the cursor of the next page when there is one."""

    sessions: list[Session]
    next_cursor: str | None


async def page(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None,
    active: bool | None,
    platform: str | None,
    limit: int,
    cursor: str | None,
) -> Page:
    """The sessions of the project, or of the whole team without one, that began last, from the cursor on."""
    before, before_id = paging.place(cursor)
    rows = await repository.newest(
        conn,
        team_id,
        project_id=project_id,
        active=active,
        platform_source=platform,
        before=before,
        before_id=before_id,
        limit=limit + 1,
    )
    shown, more = paging.page(rows, limit, lambda one: (one.started_at, one.id))
    return Page(sessions=shown, next_cursor=more)


async def one(conn: Conn, principal: Principal, named: str) -> Session:
    """The session of that id, or the newest that its agent calls so; NotFound also when the key may not see its project."""
    session_id = named_id(named)
    session = await repository.by_id(conn, principal.team_id, session_id) if session_id else None
    if session is None:
        session = await repository.said(conn, principal.team_id, named, only=principal.project_id)
    if session is None or not principal.sees(session.project_id):
        raise NotFound(NO_SUCH)
    return session


async def prompts_served(conn: Conn, principal: Principal, project_id: UUID | None, count: int) -> None:
    """Note that somebody was given the texts of so many prompts, of the project or of any of the team."""
    if count:
        kind, name = ("project", project_id) if project_id else ("team", principal.team_id)
        await audit.record(conn, principal, "prompts.served", kind, name, project_id=project_id, count=count)
