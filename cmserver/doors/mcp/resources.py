"""Resources: an observation, the summary of a session, the context of a project."""

from __future__ import annotations

import mcp_types as types
import msgspec
from mcp.shared.uri_template import UriTemplate

from cmserver.access import repository as access
from cmserver.access.limits.denials import Denials
from cmserver.base import paging
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.http.wire import convert
from cmserver.base.text import Key
from cmserver.doors.mcp.call import Call
from cmserver.doors.mcp.project import render_context
from cmserver.observations.plain import one_line, render_observation
from cmserver.observations.read import NO_SUCH as NO_SUCH_OBSERVATION
from cmserver.observations.read import read_batch, read_summary
from cmserver.recall.wire import ContextQuery
from cmserver.sessions.read import find_session

SCOPE = "observations:read"
OBSERVATION = "cmserver://observations/{number}"
SUMMARY = "cmserver://sessions/{id}/summary"
CONTEXT = "cmserver://projects/{project}/context"

NO_SUCH = "There is no such resource."
_PLAIN = "text/plain"
_PAGE_SIZE = 50
_NAME_CHARS = 200

TEMPLATES = [
    types.ResourceTemplate(
        name="observation",
        title="An observation",
        uri_template=OBSERVATION,
        description="An observation whole, by its number.",
        mime_type=_PLAIN,
    ),
    types.ResourceTemplate(
        name="session-summary",
        title="Summary of a session",
        uri_template=SUMMARY,
        description="What a session was asked, learned and completed, and what was to come next.",
        mime_type=_PLAIN,
    ),
    types.ResourceTemplate(
        name="project-context",
        title="Context of a project",
        uri_template=CONTEXT,
        description="The index of a project, as told when a session starts.",
        mime_type=_PLAIN,
    ),
]

# Some clients do not encode the slashes in a project's name.
_CONTEXT, _CONTEXT_WITH_SLASHES = UriTemplate.parse(CONTEXT), UriTemplate.parse(CONTEXT.replace("{", "{+"))
_OBSERVATION, _SUMMARY = UriTemplate.parse(OBSERVATION), UriTemplate.parse(SUMMARY)


class ResourceName(msgspec.Struct, kw_only=True):
    """The variable part of a resource's address."""

    number: Key | None = None
    id: Key | None = None
    project: Key | None = None


def list_templates(call: Call) -> list[types.ResourceTemplate]:
    """The resource templates; an empty list for a key that may not read resources."""
    return TEMPLATES if call.principal.may(SCOPE) else []


async def list_contexts(call: Call, cursor: str | None) -> types.ListResourcesResult:
    """A page of the contexts of the key's projects, newest first. Observations and sessions are too many to list."""
    principal = call.principal
    if not principal.may(SCOPE):
        return types.ListResourcesResult(resources=[])
    before, before_id = paging.place(cursor)
    async with call.dependency(Db).tenant(principal.team_id) as conn:
        rows = await access.projects(
            conn,
            principal.team_id,
            only=principal.project_id,
            archived=False,
            isolated=False,
            before=before,
            before_id=before_id,
            limit=_PAGE_SIZE + 1,
        )
    projects, next_cursor = paging.page(rows, _PAGE_SIZE, lambda project: (project.created_at, project.id))
    resources = [
        types.Resource(
            uri=_CONTEXT.expand({"project": project.canonical_id}),
            name=one_line(project.canonical_id, _NAME_CHARS),
            title=f"Context of {one_line(project.name, _NAME_CHARS)}",
            mime_type=_PLAIN,
        )
        for project in projects
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=next_cursor)


async def read_resource(call: Call, uri: str) -> types.ReadResourceResult:
    """The resource in REST's plain text. NotFound also for one that the key may not see."""
    await call.dependency(Denials).require(call.principal, SCOPE)
    text = await _render(call, convert(_variables(uri), ResourceName))
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=_PLAIN, text=text)])


def _variables(uri: str) -> dict[str, object]:
    for template in (_OBSERVATION, _SUMMARY, _CONTEXT_WITH_SLASHES):
        variables = template.match(uri)
        if variables is not None:
            return dict(variables)
    return {}


async def _render(call: Call, name: ResourceName) -> str:
    """The text of the resource; NotFound when what it names is not there."""
    if name.project is not None:
        return await render_context(call, ContextQuery(project=name.project))
    async with call.dependency(Db).tenant(call.principal.team_id) as conn:
        if name.number is not None:
            batch = await read_batch(conn, call.principal, [name.number])
            if not batch.observations:
                raise NotFound(NO_SUCH_OBSERVATION)
            return render_observation(batch.observations[0])
        if name.id is not None:
            session = await find_session(conn, call.principal, name.id)
            return render_observation(await read_summary(conn, call.principal, session))
    raise NotFound(NO_SUCH)
