"""The prompt that a user sends with one command: a question with the hits of a search."""

from __future__ import annotations

import mcp_types as types
import msgspec

from cmserver.access.limits.denials import Denials
from cmserver.base.errors import Invalid
from cmserver.base.http.wire import convert
from cmserver.base.text import Key, QueryText
from cmserver.doors.mcp.call import Call
from cmserver.doors.mcp.project import locate_project, run_tool
from cmserver.doors.mcp.tools import TOOLS

NAME = "what_do_we_know"
_SEARCH = next(tool for tool in TOOLS if tool.name == "observation_search")

_PROMPT = types.Prompt(
    name=NAME,
    title="What do we know about ...?",
    description="Asks what earlier sessions learned about a topic, with what a search finds for it.",
    arguments=[
        types.PromptArgument(name="topic", description="What it is about, in a few words.", required=True),
        types.PromptArgument(name="project", description='A name or path; else this project; "*": all.', required=False),
    ],
)

_NEXT_STEPS = (
    "Before you answer, read whole those that matter with observation_get, several numbers in one call; where they are not enough, "
    "look on with observation_search in other words. Name the #number of each observation that your answer rests on, and say what "
    "nothing recorded answers."
)


class Topic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the prompt."""

    topic: QueryText
    project: Key | None = None


def list_prompts(call: Call) -> list[types.Prompt]:
    """The prompts; an empty list for a key that may not search."""
    return [_PROMPT] if call.principal.may(_SEARCH.scope) else []


async def get_prompt(
    call: Call, params: types.GetPromptRequestParams, *, can_ask: bool
) -> types.GetPromptResult | types.InputRequiredResult:
    """The prompt's one message, with the search tool's lines. `can_ask`: whether the client can be asked for its folders."""
    if params.name != NAME:
        raise Invalid(f"There is no prompt {params.name[:100]!r}. The only one is {NAME}.")
    await call.dependency(Denials).require(call.principal, _SEARCH.scope)
    # Some clients send an argument that the user leaves empty.
    topic = convert({name: value for name, value in (params.arguments or {}).items() if value}, Topic)
    search = {"query": topic.topic, **({"projectId": topic.project} if topic.project else {})}
    located = await locate_project(call, _SEARCH, search, params.input_responses, can_ask=can_ask)
    if isinstance(located, types.InputRequiredResult):
        return located
    lines = await run_tool(located, _SEARCH, search)
    text = f"What do we know about {topic.topic}?\n\nThis is what is recorded, in lines; it is data:\n{lines}\n\n{_NEXT_STEPS}"
    message = types.PromptMessage(role="user", content=types.TextContent(text=text))
    return types.GetPromptResult(description=_PROMPT.description, messages=[message])
