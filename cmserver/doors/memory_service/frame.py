"""What the routes of the memory-service have in common: who calls, pages by offset, and how its things look."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request

from cmserver.access import projects
from cmserver.access.model import Principal, Project
from cmserver.base.errors import Issue, NotFound
from cmserver.base.ids import iso
from cmserver.base.sql import Conn
from cmserver.base.text import Text
from cmserver.doors.guest import admit_caller
from cmserver.graph.overviews.model import Overview
from cmserver.observations.model import Observation
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session
from cmserver.sessions.read import NO_SUCH as NO_SUCH_SESSION
from cmserver.sessions.turns.model import SessionTurn

PLATFORM = "memory-service"
"""The platform of sessions that its clients make, and the canonical id of the project of those without one."""

_GUEST_SCOPES = frozenset({"observations:write"})
"""What guests may do here besides what they may elsewhere: the original asks nobody for a key."""

Words = Annotated[Text, Meta(min_length=1)]
PageSize = Annotated[int, Meta(ge=1, le=200)]
Offset = Annotated[int, Meta(ge=0, le=1_000_000)]


class ServicePageQuery(msgspec.Struct, kw_only=True):
    """A page, newest first."""

    limit: PageSize = 50
    offset: Offset = 0


class ServiceSessionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A session. `externalId` is what its client calls it, or null; `projectId` is its project, or null where its client named
    none.
    """

    id: UUID
    external_id: str | None
    name: str | None
    project_id: UUID | None
    metadata: dict[str, object]
    created_at: str
    updated_at: str


class EpisodeOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A turn. `number` is the one by which other paths read it."""

    id: UUID
    number: int
    session_id: UUID
    user_message: str
    ai_response: str | None
    created_at: str


class DeletionOut(msgspec.Struct, frozen=True, kw_only=True):
    """What is deleted."""

    id: UUID
    deleted: bool = True


class ServiceSummaryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A summary of a session, or of a project: `sessionId` is the session, or null for a project. The overview of a project has no
    number.
    """

    id: UUID
    number: int | None
    session_id: UUID | None
    project_id: UUID | None
    content: str
    created_at: str
    updated_at: str


async def admit(request: Request) -> Principal:
    """The owner of the key; without one a guest on this machine, who may read and write."""
    return await admit_caller(request, more_scopes=_GUEST_SCOPES)


async def find_project(conn: Conn, principal: Principal, name: str | None) -> Project:
    """The project of that id or name; for None the key's own, or the reserved one. NotFound when the key may not see it."""
    if name is None and principal.project_id is None:
        return (await projects.make_project(conn, principal, PLATFORM, name="Sessions without a project"))[0]
    project = await projects.find(conn, principal, name or str(principal.project_id))
    if project is None:
        raise NotFound(projects.NO_SUCH, [Issue("$.projectId", projects.NO_SUCH)])
    return project


async def find_reserved_id(conn: Conn, principal: Principal) -> UUID | None:
    """The id of the reserved project, which is shown as no project; None while there is none."""
    project = await projects.find(conn, principal, PLATFORM)
    return project.id if project else None


async def find_scope(
    conn: Conn, principal: Principal, project: str | None, session_id: UUID | None
) -> tuple[UUID | None, UUID | None]:
    """The ids of the project and the session that a list is of; None for all. Those of a session are those of its project."""
    project_id = principal.project_id if project is None else (await find_project(conn, principal, project)).id
    session = await sessions.by_id(conn, principal.team_id, session_id) if session_id and project_id is None else None
    return session.project_id if session else project_id, session_id


async def require_session(conn: Conn, principal: Principal, session_id: UUID) -> Session:
    """The session; NotFound also when the key may not see its project."""
    session = await sessions.by_id(conn, principal.team_id, session_id)
    if session is None or not principal.sees(session.project_id):
        raise NotFound(NO_SUCH_SESSION)
    return session


def session_out(session: Session, reserved_id: UUID | None) -> ServiceSessionOut:
    return ServiceSessionOut(
        id=session.id,
        external_id=session.content_session_id or session.external_session_id,
        name=session.title,
        project_id=None if session.project_id == reserved_id else session.project_id,
        metadata=session.metadata,
        created_at=iso(session.started_at),
        updated_at=iso(session.updated_at),
    )


def episode_out(turn: SessionTurn) -> EpisodeOut:
    return EpisodeOut(
        id=turn.id,
        number=turn.number,
        session_id=turn.server_session_id,
        user_message=turn.prompt,
        ai_response=turn.reply,
        created_at=iso(turn.created_at),
    )


def summary_out(summary: Observation, reserved_id: UUID | None) -> ServiceSummaryOut:
    return ServiceSummaryOut(
        id=summary.id,
        number=summary.number,
        session_id=summary.server_session_id,
        project_id=None if summary.project_id == reserved_id else summary.project_id,
        content=summary.content,
        created_at=iso(summary.created_at),
        updated_at=iso(summary.updated_at),
    )


def overview_out(overview: Overview) -> ServiceSummaryOut:
    made_at = iso(overview.made_at)
    return ServiceSummaryOut(
        id=overview.id,
        number=None,
        session_id=None,
        project_id=overview.project_id,
        content=overview.body,
        created_at=made_at,
        updated_at=made_at,
    )
