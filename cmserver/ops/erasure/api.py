"""The doors to erasure."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import announce
from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db
from cmserver.base.live import Hub
from cmserver.ops.erasure import erase
from cmserver.ops.erasure.erase import Counts


class PurgedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The project is there and remembers nothing."""

    project_id: UUID
    counts: Counts
    purged: bool = True


class ProjectDeletedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The project is gone."""

    project_id: UUID
    counts: Counts
    deleted: bool = True


class TeamDeletedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The team is gone, and the key that asked for it."""

    team_id: UUID
    counts: Counts
    deleted: bool = True


async def delete_memory(request: Request) -> Response:
    """Erase all that a project remembers, and keep the project and its keys."""
    who = await caller(request, Principal)
    named = str(request.path_params["project"])
    project_id, counts = await db(request).in_tenant(who.team_id, lambda conn: erase.purge(conn, who, named))
    return answer(PurgedOut(project_id=project_id, counts=counts))


async def delete_project(request: Request) -> Response:
    """Delete a project with its memory and the keys that are bound to it."""
    who = await caller(request, Principal)
    named = str(request.path_params["project"])
    project_id, counts = await db(request).in_tenant(who.team_id, lambda conn: erase.delete_project(conn, who, named))
    _forget(request, who)
    return answer(ProjectDeletedOut(project_id=project_id, counts=counts))


async def delete_team(request: Request) -> Response:
    """Delete the key's team with everything in it; the key works no longer."""
    who = await caller(request, Principal)
    named = str(request.path_params["team"])
    counts = await db(request).in_tenant(who.team_id, lambda conn: erase.delete_team(conn, who, named))
    _forget(request, who)
    return answer(TeamDeletedOut(team_id=who.team_id, counts=counts))


def _forget(request: Request, who: Principal) -> None:
    """In this process before it answers; the others forget when they hear of it."""
    cast("Hub", request.app.state.hub).tell(announce.CHANNEL, str(who.team_id))


routes = [
    Operation("DELETE", "/v1/projects/{project:path}/memory", delete_memory, scope="observations:write", answers={200: PurgedOut}),
    Operation("DELETE", "/v1/projects/{project:path}", delete_project, scope="admin", answers={200: ProjectDeletedOut}),
    Operation("DELETE", "/v1/teams/{team}", delete_team, scope="admin", answers={200: TeamDeletedOut}),
]
