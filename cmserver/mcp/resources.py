"""Resources: an observation, the summary of a session, the context of a project; and completion of what names one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

import mcp_types as types
import msgspec
from mcp.shared.uri_template import UriTemplate

from cmserver.access import repository as access
from cmserver.access.limits.denials import Denials
from cmserver.base import paging
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.wire import convert
from cmserver.base.sql import Conn
from cmserver.base.text import KEY_MOST, UNSTORABLE, Key
from cmserver.mcp import prompts
from cmserver.mcp.call import Call
from cmserver.mcp.project import render_context
from cmserver.observations import read as observations
from cmserver.observations import repository
from cmserver.observations.plain import one_line, render_observation
from cmserver.recall.wire import ContextQuery
from cmserver.sessions import read as sessions

SCOPE = "observations:read"
OBSERVATION = "cmserver://observations/{number}"
SUMMARY = "cmserver://sessions/{id}/summary"
CONTEXT = "cmserver://projects/{project}/context"

NO_SUCH = "There is no such resource."
_PLAIN = "text/plain"
_PAGE_SIZE = 50
_NAME_CHARS = 200
_MAX_VALUES = 100
"""The protocol's limit of a completion."""
_DIGITS = 18
_NUMBER_BEGUN = re.compile(r"#?[Ss]?([1-9][0-9]{0,17})?")
_ID_BEGUN = re.compile(r"[0-9a-f]{0,32}")

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
            batch = await observations.read_batch(conn, call.principal, [name.number])
            if not batch.observations:
                raise NotFound(observations.NO_SUCH)
            return render_observation(batch.observations[0])
        if name.id is not None:
            session = await sessions.find_session(conn, call.principal, name.id)
            return render_observation(await observations.read_summary(conn, call.principal, session))
    raise NotFound(NO_SUCH)


Find = Callable[[Conn, Call, str], Awaitable[Sequence[object]]]
"""The values that begin with the text, the likeliest first, and one more than an answer may have where there are more."""


async def complete_argument(call: Call, ref: str, argument: str, prefix: str) -> types.Completion:
    """The values of that argument of a template or prompt. `total` is given only when all of them are returned."""
    finders = _FINDERS.get(ref)
    if finders is None or argument not in finders:
        raise Invalid("Unknown prompt, resource template or argument. prompts/list and resources/templates/list name them.")
    find = finders[argument]
    if find is None or not call.principal.may(SCOPE) or len(prefix) > KEY_MOST or UNSTORABLE.search(prefix):
        return types.Completion(values=[], total=0, has_more=False)
    async with call.dependency(Db).tenant(call.principal.team_id) as conn:
        values = [*map(str, await find(conn, call, prefix))]
    has_more = len(values) > _MAX_VALUES
    return types.Completion(values=values[:_MAX_VALUES], total=None if has_more else len(values), has_more=has_more)


async def _find_numbers(conn: Conn, call: Call, prefix: str) -> Sequence[object]:
    """Numbers of observations, the newest first."""
    match = _NUMBER_BEGUN.fullmatch(prefix.strip())
    if match is None:
        return []
    return await repository.numbers_within(
        conn, call.principal.team_id, _number_ranges(match[1] or ""), project_id=call.principal.project_id, limit=_MAX_VALUES + 1
    )


def _number_ranges(digits: str) -> list[tuple[int, int]]:
    """The ranges of numbers that begin with the digits: 12, 120 to 129, 1200 to 1299, ..."""
    if not digits:
        return [(1, 10**_DIGITS - 1)]
    first = int(digits)
    return [(first * 10**more, (first + 1) * 10**more - 1) for more in range(_DIGITS - len(digits) + 1)]


async def _find_summarised_sessions(conn: Conn, call: Call, prefix: str) -> Sequence[object]:
    """Ids of sessions that have a summary, the newest first."""
    digits = prefix.strip().lower().replace("-", "")
    if not _ID_BEGUN.fullmatch(digits):
        return []
    return await repository.sessions_summed_up(
        conn,
        call.principal.team_id,
        first=UUID(digits.ljust(32, "0")),
        last=UUID(digits.ljust(32, "f")),
        project_id=call.principal.project_id,
        limit=_MAX_VALUES + 1,
    )


async def _find_projects(conn: Conn, call: Call, prefix: str) -> Sequence[object]:
    """Canonical ids of projects whose id or name begins so."""
    return await access.names_begun(
        conn, call.principal.team_id, prefix.strip(), only=call.principal.project_id, limit=_MAX_VALUES + 1
    )


_FINDERS: Mapping[str, Mapping[str, Find | None]] = {
    OBSERVATION: {"number": _find_numbers},
    SUMMARY: {"id": _find_summarised_sessions},
    CONTEXT: {"project": _find_projects},
    prompts.NAME: {"topic": None, "project": _find_projects},
}
