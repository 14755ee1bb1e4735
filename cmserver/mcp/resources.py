"""What can be read by its address: an observation, the summary of a session, the context of a project."""

from __future__ import annotations

from collections.abc import Mapping

import mcp_types as types
import msgspec
from mcp.shared.uri_template import UriTemplate

from cmserver.access import repository as access
from cmserver.base import paging
from cmserver.base.errors import NotFound
from cmserver.base.http.wire import convert
from cmserver.base.text import Key
from cmserver.mcp.call import Call
from cmserver.observations import read as observations
from cmserver.observations.plain import one_line, whole
from cmserver.recall.index.layout import TOOLS
from cmserver.recall.wire import ContextQuery
from cmserver.sessions import read as sessions

SCOPE = "observations:read"
OBSERVATION = "cmserver://observations/{number}"
SUMMARY = "cmserver://sessions/{id}/summary"
CONTEXT = "cmserver://projects/{project}/context"

NO_SUCH = "There is no such resource."
_PLAIN = "text/plain"
_LISTED = 50
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

# A client that does not encode the slashes of a project's name is understood, too.
_CONTEXT, _CONTEXT_TAKEN = UriTemplate.parse(CONTEXT), UriTemplate.parse(CONTEXT.replace("{", "{+"))
_OBSERVATION, _SUMMARY = UriTemplate.parse(OBSERVATION), UriTemplate.parse(SUMMARY)


class Named(msgspec.Struct, kw_only=True):
    """What an address names."""

    number: Key | None = None
    id: Key | None = None
    project: Key | None = None


def templates(call: Call) -> list[types.ResourceTemplate]:
    """How addresses are made; none for a key that may not read what is there."""
    return TEMPLATES if call.who.may(SCOPE) else []


async def listed(call: Call, cursor: str | None) -> types.ListResourcesResult:
    """A page of the contexts of the projects that the key sees, newest first: observations and sessions are too many to list."""
    if not call.who.may(SCOPE):
        return types.ListResourcesResult(resources=[])
    before, before_id = paging.place(cursor)
    async with call.verbs.db.tenant(call.who.team_id) as conn:
        rows = await access.projects(
            conn,
            call.who.team_id,
            only=call.who.project_id,
            archived=False,
            before=before,
            before_id=before_id,
            limit=_LISTED + 1,
        )
    shown, more = paging.page(rows, _LISTED, lambda one: (one.created_at, one.id))
    resources = [
        types.Resource(
            uri=_CONTEXT.expand({"project": one.canonical_id}),
            name=one_line(one.canonical_id, _NAME_CHARS),
            title=f"Context of {one_line(one.name, _NAME_CHARS)}",
            mime_type=_PLAIN,
        )
        for one in shown
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=more)


async def read(call: Call, uri: str) -> types.ReadResourceResult:
    """What is at that address, as REST tells it in plain text. NotFound also when it is nothing that the key may see."""
    await call.verbs.denials.require(call.who, SCOPE)
    text = await _text(call, convert(dict(_taken(uri)), Named))
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=_PLAIN, text=text)])


def _taken(uri: str) -> Mapping[str, object]:
    for template in (_OBSERVATION, _SUMMARY, _CONTEXT_TAKEN):
        found = template.match(uri)
        if found is not None:
            return found
    return {}


async def _text(call: Call, named: Named) -> str:
    if named.project is not None:
        return (await call.verbs.contexts.told(call.who, ContextQuery(project=named.project), reader=TOOLS)).text
    async with call.verbs.db.tenant(call.who.team_id) as conn:
        if named.number is not None:
            found = await observations.several(conn, call.who, [named.number])
            if not found.observations:
                raise NotFound(observations.NO_SUCH)
            return whole(found.observations[0])
        if named.id is not None:
            session = await sessions.one(conn, call.who, named.id)
            return whole(await observations.summary(conn, call.who, session))
    raise NotFound(NO_SUCH)
