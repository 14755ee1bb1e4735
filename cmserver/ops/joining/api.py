"""Joining projects over HTTP."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import announce
from cmserver.access.model import Principal
from cmserver.access.wire import OneProjectOut, project_out
from cmserver.base.http.operation import post
from cmserver.base.http.wire import answer, caller, db, dependency, read
from cmserver.base.notifications import NotificationListener
from cmserver.base.structs import reshape
from cmserver.base.text import Key
from cmserver.ops.joining.join import join_projects, separate_projects
from cmserver.ops.joining.move_session import move_session
from cmserver.sessions.wire import OneSessionOut, SessionOut


class ProjectJoinIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`into` is the project that gets the memory of the one in the path, by any of its names."""

    into: Key


async def post_join(request: Request) -> Response:
    """Join a project to another one, which gets all its memory and its names; the answer is that one."""
    principal = await caller(request, Principal)
    body = await read(request, ProjectJoinIn)
    project = await join_projects(db(request), principal, str(request.path_params["project"]), body.into)
    announce.drop_cached_here(dependency(request, NotificationListener), principal.team_id)
    return answer(OneProjectOut(project=project_out(project)))


async def post_separate(request: Request) -> Response:
    """Separate a joined project, named by its id: it gets its memory back, and what came under its names since.

    A project that has taken its folder's new name by itself is called by its folder again.
    """
    principal = await caller(request, Principal)
    project = await separate_projects(db(request), principal, str(request.path_params["project"]))
    announce.drop_cached_here(dependency(request, NotificationListener), principal.team_id)
    return answer(OneProjectOut(project=project_out(project)))


class SessionMoveIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`into` is the project that gets the session, by any of its names."""

    into: Key


async def post_move(request: Request) -> Response:
    """Move a session with all that was drawn from it to another project.

    What is sent again under its old project is still known.
    """
    principal = await caller(request, Principal)
    body = await read(request, SessionMoveIn)
    session = await move_session(db(request), principal, str(request.path_params["id"]), body.into)
    return answer(OneSessionOut(session=reshape(session, SessionOut)))


routes = [
    post("/v1/sessions/{id}/move", post_move, "admin", OneSessionOut, body=SessionMoveIn),
    post("/v1/projects/{project:path}/join", post_join, "admin", OneProjectOut, body=ProjectJoinIn),
    post("/v1/projects/{project:path}/separate", post_separate, "admin", OneProjectOut),
]
