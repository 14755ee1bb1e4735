"""Projects over HTTP."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import make_project
from cmserver.access.wire import ProjectOut, project_out
from cmserver.base.errors import Invalid, Issue
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, body, caller, convert, db
from cmserver.base.ids import parse_id
from cmserver.base.redaction.clean import clean_aside, decode_json
from cmserver.base.redaction.redact import redact
from cmserver.base.text import Key, Text


class ProjectIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST /v1/projects."""

    canonical_id: Key
    name: Annotated[Text, Meta(min_length=1, max_length=200)] | None = None
    metadata: dict[str, object] = {}


class OneOut(msgspec.Struct, frozen=True, kw_only=True):
    """One project."""

    project: ProjectOut


async def post_project(request: Request) -> Response:
    """Make a project, or find it when it is there."""
    who = await caller(request, Principal)
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
    return answer(OneOut(project=project_out(project)), 201 if is_new else 200)


routes = [
    Operation("POST", "/v1/projects", post_project, scope="events:write", body=ProjectIn, answers={200: OneOut, 201: OneOut}),
]
