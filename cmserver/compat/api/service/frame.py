"""What the routes of the memory-service have in common: who calls, pages by offset, and how its things look."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request

from cmserver.access import projects
from cmserver.access.model import Principal, Project
from cmserver.base.errors import NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.base.text import Text
from cmserver.compat.api.guest import admit_caller
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
    """A session. `projectId` is null where its client named no project."""

    id: UUID
    external_id: str | None
    name: str | None
    project_id: UUID | None
    metadata: dict[str, object]
    created_at: str
    updated_at: str


class EpisodeOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A turn. `number` is the one by which other doors open it."""

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
    """A summary of a session, or of a project."""

    id: UUID
    number: int
    session_id: UUID | None
    project_id: UUID
    content: str
    created_at: str
    updated_at: str


async def admit(request: Request) -> Principal:
    """The owner of the key; without one a guest on this machine, who may read and write."""
    return await admit_caller(request, more_scopes=_GUEST_SCOPES)


def path_id(request: Request, no_such: str) -> UUID:
    """The id in the path; NotFound where it is none."""
    found = named_id(str(request.path_params["id"]))
    if found is None:
        raise NotFound(no_such)
    return found


async def reserved_project(conn: Conn, principal: Principal) -> Project:
    """The project of sessions without one; a key that is bound to a project has that one."""
    if principal.project_id is not None:
        return await projects.require_project(conn, principal, str(principal.project_id))
    return (await projects.make_project(conn, principal, PLATFORM, name="Sessions without a project"))[0]


async def find_project_id(conn: Conn, principal: Principal, name: str | None) -> UUID | None:
    """The id of the project of that name or id, or of the key's own; None for all. NotFound when the key may not see it."""
    return principal.project_id if name is None else (await projects.require_project(conn, principal, name)).id


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
        created_at=iso(session.created_at),
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


def summary_out(summary: Observation) -> ServiceSummaryOut:
    return ServiceSummaryOut(
        id=summary.id,
        number=summary.number,
        session_id=summary.server_session_id,
        project_id=summary.project_id,
        content=summary.content,
        created_at=iso(summary.created_at),
        updated_at=iso(summary.updated_at),
    )


def iso(at: datetime) -> str:
    """The time in ISO 8601 as JavaScript writes it: UTC, milliseconds, `Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
