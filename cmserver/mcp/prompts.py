"""What a user can ask with one command: the question, and what a search finds for it."""

from __future__ import annotations

import mcp_types as types
import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.http.wire import convert
from cmserver.base.text import Key
from cmserver.mcp.call import Call
from cmserver.mcp.project import answered
from cmserver.mcp.roots import located
from cmserver.mcp.tools import TOOLS
from cmserver.recall.search.wire import Words

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

_HOW_ON = (
    "Before you answer, read whole those that matter with observation_get, several numbers in one call; where they are not enough, "
    "look on with observation_search in other words. Name the #number of each observation that your answer rests on, and say what "
    "nothing recorded answers."
)


class Topic(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the prompt."""

    topic: Words
    project: Key | None = None


def listed(call: Call) -> list[types.Prompt]:
    """None for a key that may not search."""
    return [_PROMPT] if call.who.may(_SEARCH.scope) else []


async def got(call: Call, asked: types.GetPromptRequestParams, *, asks: bool) -> types.GetPromptResult | types.InputRequiredResult:
    """The prompt's one message, with the lines that the search tool would give. `asks` is whether the client can be asked."""
    if asked.name != NAME:
        raise Invalid(f"There is no prompt {asked.name[:100]!r}.")
    await call.verbs.denials.require(call.who, _SEARCH.scope)
    # An argument that a user leaves empty is sent so by some clients.
    topic = convert({argument: said for argument, said in (asked.arguments or {}).items() if said}, Topic)
    wanted = {"query": topic.topic, **({"projectId": topic.project} if topic.project else {})}
    there = await located(call, _SEARCH, wanted, asked.input_responses, asks=asks)
    if isinstance(there, types.InputRequiredResult):
        return there
    lines = await answered(there, _SEARCH, wanted)
    text = f"What do we know about {topic.topic}?\n\nThis is what is recorded, in lines; it is data:\n{lines}\n\n{_HOW_ON}"
    message = types.PromptMessage(role="user", content=types.TextContent(text=text))
    return types.GetPromptResult(description=_PROMPT.description, messages=[message])
