"""The project of a call: the key's own, the one that the arguments name, or the one that the client works in.

A client that names no project is asked for its folders, and sends the call again with them; nothing is remembered in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import mcp_types as types
import msgspec
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from cmserver.access.projects import ProjectNotFound, Projects, canonical_id, display_name
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, NotFound
from cmserver.doors.mcp.call import Arguments, Call, Tool
from cmserver.recall.context import render_requested_context
from cmserver.recall.index.layout import TOOLS
from cmserver.recall.model import ContextBudget
from cmserver.recall.wire import ContextQuery

ANY = "*"
"""As an argument: all projects that the key may see."""

NOTHING_YET = f'Nothing is known of this project yet. A search with "{ANY}" as the project goes through all that this key may see.'

_ROOTS = "roots"
_MAX_ROOTS = 20
"""More folders than that do not say which project is meant."""
_ROOTS_REQUEST = types.InputRequiredResult(input_requests={_ROOTS: types.ListRootsRequest()})


async def run_tool(call: Call, tool: Tool, arguments: Arguments) -> str:
    """The tool's text for the project that is meant. A client's folder without a project yet is no error for a reading tool."""
    try:
        return await tool.handler.run(call, _add_project(call, tool, arguments))
    except ProjectNotFound:
        is_of_client = call.project is not None and _lacks_project(call, tool, arguments)
        if tool.writes or not is_of_client:
            raise
        return NOTHING_YET


def _add_project(call: Call, tool: Tool, arguments: Arguments) -> Arguments:
    """The arguments with the client's project where they name none. A key that is bound to a project knows its own."""
    field = tool.project_field
    if field is None:
        return arguments
    if arguments.get(field) == ANY:
        return {name: value for name, value in arguments.items() if name != field}
    if call.project is None or not _lacks_project(call, tool, arguments):
        return arguments
    return {**arguments, field: call.project}


def _lacks_project(call: Call, tool: Tool, arguments: Arguments) -> bool:
    """Whether the tool needs a project that neither the key nor the arguments name. Null names nothing."""
    return (
        tool.project_field is not None
        and call.principal.project_id is None
        and all(arguments.get(field) is None for field in (tool.project_field, *tool.project_alternatives))
    )


def can_list_roots(version: str, capabilities: types.ClientCapabilities | None) -> bool:
    """Whether the client can be asked for its folders; protocols before 2026-07-28 need a session for that, and there is none."""
    return version in MODERN_PROTOCOL_VERSIONS and capabilities is not None and capabilities.roots is not None


async def locate_project(
    call: Call, tool: Tool, arguments: Arguments, responses: Mapping[str, types.InputResponse] | None, *, can_ask: bool
) -> Call | types.InputRequiredResult:
    """The call with the project of the client's folder, where nothing else names one; or the request for its folders."""
    if call.project is not None or not call.principal.may(tool.scope) or not _lacks_project(call, tool, arguments):
        return call
    if responses is not None:
        return msgspec.structs.replace(call, project=await _find_root_project(call, responses, by_name=not tool.writes))
    return _ROOTS_REQUEST if can_ask else call


async def _find_root_project(call: Call, responses: Mapping[str, types.InputResponse], *, by_name: bool) -> str | None:
    """The id of the first team project whose path is one of the client's folders, or `by_name` its last part: enough to read there,
    not to write there.
    """
    response = responses.get(_ROOTS)
    if not isinstance(response, types.ListRootsResult):
        return None
    for root in response.roots[:_MAX_ROOTS]:
        for name in _project_names(str(root.uri))[: 2 if by_name else 1]:
            try:
                return str((await call.dependency(Projects).find(call.principal, name)).id)
            except (Invalid, NotFound):
                continue
    return None


def _project_names(uri: str) -> list[str]:
    """The names that a project in that folder may have: the path, and the folder's own name."""
    try:
        parts = urlsplit(uri)
        path = canonical_id(unquote(parts.path))
    except (Invalid, ValueError):
        return []
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or path == "/":
        return []
    return [path, display_name(path)]


async def render_context(call: Call, query: ContextQuery, *, at: str = "$.project", place: int = 1, among: int = 1) -> str:
    """The context index of a project, whose agent reads more with these tools; "" when there is nothing to tell.

    It is that of the `place` of so many; the last one ends with what is the person's alone.
    """
    db, projects, budget = call.dependency(Db), call.dependency(Projects), call.dependency(ContextBudget)
    context = await render_requested_context(
        db,
        projects,
        budget,
        call.principal,
        query,
        reader=TOOLS,
        at=at,
        project_count=among,
        without_yours=place < among,
    )
    return context.text
