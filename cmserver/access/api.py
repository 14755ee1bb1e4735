"""Projects over HTTP. (Teams, keys and members follow.)"""

from __future__ import annotations

from typing import Annotated, cast
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cmserver.access.model import Principal, Project
from cmserver.access.projects import make_project
from cmserver.base.errors import Invalid, Issue
from cmserver.base.http.wire import answer, body, caller, convert, db
from cmserver.base.ids import epoch_ms, parse_id
from cmserver.base.redaction.clean import clean_aside, decode_json
from cmserver.base.redaction.redact import redact
from cmserver.base.text import Key, Text


class ProjectIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST /v1/projects."""

    canonical_id: Key
    name: Annotated[Text, Meta(min_length=1, max_length=200)] | None = None
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
    raw = await body(request)
    asked = convert(decode_json(raw or b"{}"), ProjectIn)
    if parse_id(asked.canonical_id):
        message = "A project is made by its canonical id (github.com/user/repo, a name, a path), not by a uuid."
        raise Invalid(message, [Issue("$.canonicalId", message)])
    name = redact(asked.name)[0].strip() if asked.name else None
    most = cast("int", request.app.state.field_max_chars)
    cleaned = await clean_aside(asked.metadata, field_max_chars=most, size_bytes=len(raw), at="$.metadata")
    metadata = cast("dict[str, object]", cleaned.value)
    try:
        project, is_new = await db(request).in_tenant(
            who.team_id, lambda conn: make_project(conn, who, asked.canonical_id, name=name, metadata=metadata)
        )
    except Invalid as error:
        raise Invalid(str(error), [Issue("$.canonicalId", str(error))]) from error
    return answer({"project": project_out(project)}, 201 if is_new else 200)


routes = [Route("/v1/projects", post_project, methods=["POST"])]
