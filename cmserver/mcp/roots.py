"""The folders that a client works in, for calls that name no project: it is asked for them, and sends the call again with them.

Nothing is remembered between the two, so that each such call is asked anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import mcp_types as types
import msgspec
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from cmserver.access.projects import canonical_id, display_name
from cmserver.base.errors import Invalid, NotFound
from cmserver.mcp.call import Arguments, Call, Tool
from cmserver.mcp.project import is_open

_ASKED = "roots"
_MOST = 20
"""Somebody who works in more folders at once has not said which project is meant."""

_QUESTION = types.InputRequiredResult(input_requests={_ASKED: types.ListRootsRequest()})


def can_tell(version: str, capabilities: types.ClientCapabilities | None) -> bool:
    """Whether the client can be asked: before 2026-07-28 that takes a session, and there is none."""
    return version in MODERN_PROTOCOL_VERSIONS and capabilities is not None and capabilities.roots is not None


async def located(
    call: Call, tool: Tool, arguments: Arguments, answers: Mapping[str, types.InputResponse] | None, *, asks: bool
) -> Call | types.InputRequiredResult:
    """The call with the project that its client works in, where nothing else says one; or what the client is to be asked first."""
    if call.project is not None or not call.who.may(tool.scope) or not is_open(call, tool, arguments):
        return call
    if answers is not None:
        return msgspec.structs.replace(call, project=await _project_of(call, answers, by_name=not tool.writes))
    return _QUESTION if asks else call


async def _project_of(call: Call, answers: Mapping[str, types.InputResponse], *, by_name: bool) -> str | None:
    """The id of the first of the team's projects that is a folder of the client's, or `by_name` is called as one: that is enough to
    look there, but not to write there.
    """
    answer = answers.get(_ASKED)
    if not isinstance(answer, types.ListRootsResult):
        return None
    for root in answer.roots[:_MOST]:
        for name in _names(str(root.uri))[: 2 if by_name else 1]:
            try:
                return str((await call.verbs.projects.find(call.who, name)).id)
            except (Invalid, NotFound):
                continue
    return None


def _names(uri: str) -> list[str]:
    """What a project in that folder may be called: by its path, or as the folder."""
    try:
        parts = urlsplit(uri)
        path = canonical_id(unquote(parts.path))
    except (Invalid, ValueError):
        return []
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or path == "/":
        return []
    return [path, display_name(path)]
