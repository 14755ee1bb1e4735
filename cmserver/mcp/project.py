"""Which project a call is about: the key's own, or what the arguments say, or else where its client works."""

from __future__ import annotations

from cmserver.access.projects import NO_SUCH
from cmserver.base.errors import NotFound
from cmserver.mcp.call import Arguments, Call, Tool

ANY = "*"
"""In an argument: all that the key may see."""

NOTHING_YET = f'Nothing is known of this project yet. A search with "{ANY}" as the project goes through all that this key may see.'


async def answered(call: Call, tool: Tool, arguments: Arguments) -> str:
    """What the tool answers about the project that is meant. That nothing was recorded yet where a client works is no mistake."""
    try:
        return await tool.takes.run(call, in_project(call, tool, arguments))
    except NotFound as error:
        is_of_client = call.project is not None and is_open(call, tool, arguments)
        if tool.writes or not is_of_client or str(error) != NO_SUCH:
            raise
        return NOTHING_YET


def in_project(call: Call, tool: Tool, arguments: Arguments) -> Arguments:
    """The arguments with the client's project where they name none. A key that is bound to a project knows its own."""
    field = tool.project_in
    if field is None:
        return arguments
    if arguments.get(field) == ANY:
        return {name: value for name, value in arguments.items() if name != field}
    if call.project is None or not is_open(call, tool, arguments):
        return arguments
    return {**arguments, field: call.project}


def is_open(call: Call, tool: Tool, arguments: Arguments) -> bool:
    """Whether neither the key nor the arguments say which project is meant, and the tool would go by it. Null says nothing."""
    return (
        tool.project_in is not None
        and call.who.project_id is None
        and all(arguments.get(one) is None for one in (tool.project_in, *tool.unless))
    )
