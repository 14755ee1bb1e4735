"""Projects over HTTP. (Teams, keys and members follow.)"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cmserver.access.model import Principal, Project
from cmserver.access.projects import make_project
from cmserver.base.errors import Invalid, Issue
from cmserver.base.http.wire import answer, caller, db, read
from cmserver.base.ids import epoch_ms, parse_id


class ProjectIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST /v1/projects."""

    canonical_id: Annotated[str, Meta(min_length=1, max_length=1000)]
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    metadata: dict[str, object] = {}


class ProjectOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A project on the wire."""

    id: UUID
    team_id: UUID
    canonical_id: str
    name: str
    metadata: dict[str, object]
    created_at_epoch: int
    updated_at_epoch: int


def project_out(project: Project) -> ProjectOut:
    """The project as it is shown."""
    return ProjectOut(
        id=project.id,
        team_id=project.team_id,
        canonical_id=project.canonical_id,
        name=project.name,
        metadata=project.metadata,
        created_at_epoch=epoch_ms(project.created_at),
        updated_at_epoch=epoch_ms(project.updated_at),
    )


async def post_project(request: Request) -> Response:
    """Make a project, or find it when it is there."""
    who = await caller(request, Principal, "events:write")
    asked = await read(request, ProjectIn)
    if parse_id(asked.canonical_id):
        message = "A project is made by its canonical id (github.com/user/repo, a name, a path), not by a uuid."
        raise Invalid(message, [Issue("$.canonicalId", message)])
    project, is_new = await db(request).in_tenant(
        who.team_id, lambda conn: make_project(conn, who, asked.canonical_id, name=asked.name, metadata=asked.metadata)
    )
    return answer({"project": project_out(project)}, 201 if is_new else 200)


routes = [Route("/v1/projects", post_project, methods=["POST"])]
