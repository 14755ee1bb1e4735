"""Projects of the memory-service: their names are unique, as our canonical ids are."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import announce, change_project, projects
from cmserver.access import repository as access
from cmserver.access.change_project import ProjectChange
from cmserver.access.clean import clean_name
from cmserver.access.model import Project
from cmserver.base.errors import Conflict
from cmserver.base.http.operation import delete, get, patch, post
from cmserver.base.http.wire import answer, db, dependency, query, read
from cmserver.base.ids import iso
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn
from cmserver.doors.memory_service.frame import DeletionOut, ServicePageQuery, admit, find_reserved_id
from cmserver.ops.erasure.erase import delete_project

_TAKEN = "A project with this name exists already."
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class ServiceProjectIn(msgspec.Struct, rename="camel", kw_only=True):
    """A new project; nothing of an isolated one is found from elsewhere."""

    name: Name
    isolated: bool = False


class ServiceProjectChangeIn(msgspec.Struct, rename="camel", kw_only=True):
    """What is not sent stays."""

    name: Name | UnsetType = UNSET
    isolated: bool | UnsetType = UNSET


class ServiceProjectOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A project."""

    id: UUID
    name: str
    isolated: bool
    created_at: str
    updated_at: str


async def get_projects(request: Request) -> Response:
    """A page of projects, newest first, without the reserved one."""
    principal = await admit(request)
    params = query(request, ServicePageQuery)
    async with db(request).tenant(principal.team_id) as conn:
        rows = await access.projects(
            conn,
            principal.team_id,
            only=principal.project_id,
            archived=False,
            without=await find_reserved_id(conn, principal),
            before=None,
            before_id=None,
            limit=params.limit,
            offset=params.offset,
        )
    return answer([*map(_project_out, rows)])


async def post_project(request: Request) -> Response:
    """Make a project; 409 when its name is taken."""
    principal = await admit(request)
    new = await read(request, ServiceProjectIn)
    name = clean_name(new.name, at="$.name")

    async def make(conn: Conn) -> Project:
        project, is_new = await projects.make_project(conn, principal, name, name=name)
        if not is_new:
            raise Conflict(_TAKEN)
        if new.isolated:
            project = await change_project.change(conn, principal, str(project.id), ProjectChange(isolated=True))
        return project

    return answer(_project_out(await db(request).in_tenant(principal.team_id, make)), 201)


async def get_project(request: Request) -> Response:
    """One project."""
    principal = await admit(request)
    name = str(request.path_params["id"])
    async with db(request).tenant(principal.team_id) as conn:
        return answer(_project_out(await projects.require_project(conn, principal, name)))


async def patch_project(request: Request) -> Response:
    """Rename a project, or isolate it; 409 when another one has the name. To open an isolated one needs the scope admin."""
    principal = await admit(request)
    reference = str(request.path_params["id"])
    body = await read(request, ServiceProjectChangeIn)
    name = UNSET if body.name is UNSET else clean_name(body.name, at="$.name")
    if body.isolated is False:
        principal.require("admin")

    async def apply(conn: Conn) -> Project:
        if name is not UNSET:
            await access.lock_names(conn, principal.team_id)
            project = await projects.require_project(conn, principal, reference)
            if (await projects.find(conn, principal, name) or project).id != project.id:
                raise Conflict(_TAKEN)
        return await change_project.change(conn, principal, reference, ProjectChange(name=name, isolated=body.isolated))

    return answer(_project_out(await db(request).in_tenant(principal.team_id, apply)))


async def delete_service_project(request: Request) -> Response:
    """Delete a project with its sessions and all that is remembered of it."""
    principal = await admit(request)
    name = str(request.path_params["id"])
    deleted, _ = await db(request).in_tenant(
        principal.team_id, lambda conn: delete_project(conn, principal, name), has_time_limit=False
    )
    announce.drop_cached_here(dependency(request, NotificationListener), principal.team_id)
    return answer(DeletionOut(id=deleted))


def _project_out(project: Project) -> ServiceProjectOut:
    return ServiceProjectOut(
        id=project.id,
        name=project.name,
        isolated=project.isolated,
        created_at=iso(project.created_at),
        updated_at=iso(project.updated_at),
    )


routes = [
    get("/projects", get_projects, "observations:read", list[ServiceProjectOut], query=ServicePageQuery),
    post("/projects", post_project, "events:write", ServiceProjectOut, status=201, body=ServiceProjectIn),
    get("/projects/{id}", get_project, "observations:read", ServiceProjectOut),
    patch("/projects/{id}", patch_project, "observations:write", ServiceProjectOut, body=ServiceProjectChangeIn),
    delete("/projects/{id}", delete_service_project, "admin", DeletionOut),
]
