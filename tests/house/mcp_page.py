"""docs/reference/mcp.md: what the code says of its tools."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cmserver.doors.mcp.aliases import list_tools
from cmserver.doors.mcp.call import Tool
from cmserver.doors.mcp.contextify import CONTEXTIFY
from cmserver.doors.mcp.prompts import NAME as PROMPT
from cmserver.doors.mcp.resources import TEMPLATES
from cmserver.doors.mcp.server import HOW_TO_WRITE, INSTRUCTIONS, describe_tool
from cmserver.doors.mcp.tools import TOOLS
from cmserver.observations.model import estimate_tokens


def mcp_page() -> str:
    """The page."""
    aliases = [one for one in list_tools("claude-mem") if one not in TOOLS]
    lists = {name: tokens(list_tools(name)) for name in ("none", "claude-mem", "memory", "contextify", "all")}
    return _PAGE.format(
        tools="\n".join(map(_section, TOOLS)),
        lists=", ".join(f"`{name}` {cost:,}" for name, cost in lists.items()),
        aliases="\n".join(map(_alias, aliases)),
        contextify="\n".join(map(_contextify, CONTEXTIFY)),
        resources="\n".join(f"| `{one.uri_template}` | {one.description} |" for one in TEMPLATES),
        prompt=PROMPT,
        instructions=(INSTRUCTIONS + HOW_TO_WRITE).strip(),
        instruction_tokens=estimate_tokens(INSTRUCTIONS + HOW_TO_WRITE),
    )


def tokens(listed: Sequence[Tool]) -> int:
    """What the whole answer to tools/list takes, annotations included, which no model sees."""
    shown = [describe_tool(one).model_dump(by_alias=True, exclude_none=True) for one in listed]
    return estimate_tokens(msgspec.json.encode(shown).decode())


def _section(tool: Tool) -> str:
    rows = "\n".join(f"- `{name}`{f': {text}' if text else ''}" for name, text in tool.shown_fields.items())
    further = [name for name in _names(tool) if name not in tool.shown_fields]
    more = f"\n\nIt also takes {', '.join(f'`{name}`' for name in further)}, of which models are not told." if further else ""
    kind = "writes" if tool.writes else "reads only"
    return f"### {tool.name}\n\n{tool.description} Scope `{tool.scope}`; {kind}.\n\n{rows}{more}\n"


def _names(tool: Tool) -> list[str]:
    return [one.encode_name for one in msgspec.structs.fields(tool.handler.struct)]


def _alias(one: Tool) -> str:
    native = one.description.removeprefix("As ").partition(",")[0]
    return f"| `{one.name}` | `{native}` | {', '.join(f'`{name}`' for name in _names(one))} |"


def _contextify(one: Tool) -> str:
    return f"| `{one.name}` | {one.description} | {', '.join(f'`{name}`' for name in _names(one))} |"


_PAGE = """\
# MCP

<!-- Generated from cmserver/doors/mcp by tests/house/mcp_page.py. -->

The Model Context Protocol is served at `/mcp`, and the same at `/v1/mcp`, as Streamable HTTP: each message is a POST with the key
of the caller, and is answered in JSON. Both eras of the protocol are understood, that of 2026-07-28 and those that begin with
`initialize` (2024-11-05 to 2025-11-25). There are no sessions and no streams: GET and DELETE are answered with 405. A message
has at most 131,072 bytes besides the `arguments` of a tool.

How to add it to a coding agent is told in [Add the MCP server](../howto/add-the-mcp-server.md), why it is as it is in
[Why MCP is served so](../why/mcp.md).

| answer | when |
|---|---|
| 401 with `WWW-Authenticate: Bearer` | no key, or one that is wrong, expired or revoked |
| 403 | a web page asks whose origin is not listed in `CMSERVER_ALLOWED_HOSTS` |
| 421 | the server is asked by a name that is not listed in `CMSERVER_ALLOWED_HOSTS` |
| 408, 413, 429, 503 | as with each other path |
| 400 | the body is no message of JSON-RPC, or its header `Content-Type` is not `application/json` |
| 200, `isError: true` | a tool was refused something: the text is REST's sentence, with the path of the wrong argument |
| 200, `error` | the message is wrong: there is no such method or tool (-32601, -32602), or a bug here (-32603) |

## Which project

A key that is bound to a project is about that one. Else it is the argument `projectId` (`"*"` is all that the key may see), else
the header `X-Cmserver-Project`, a name, a path or the address of a git remote, as hooks say it. Else clients of 2026-07-28 that
declare roots are asked for them (`InputRequiredResult` with `roots/list`, one more round trip): of the first 20 folders the first
counts whose path is a project, or for tools that read, whose name is. Without any of them search goes through all projects of the
team, and what needs one project says so.

## Tools

A key is shown the tools that it has the scopes for. Their arguments are those of REST, see [HTTP](http.md), and are checked by
the same code; answers are text in the format of the index. `~` before a number is what reading the whole takes, in tokens of four
characters.

{tools}
## Further names

`CMSERVER_MCP_ALIASES` adds names that models or skills may know from elsewhere: with `memory` each native tool has a second one,
`memory_search` and so on, with `claude-mem` and `contextify` there are those below, with `all` all of them. The answer to
`tools/list` takes so many tokens with each value: {lists}.

| name of claude-mem | what it does | arguments |
|---|---|---|
{aliases}

Contextify's tools answer in JSON, in the shapes of its routes (see [Compatibility](compatibility.md)).

| name of Contextify | what it does | arguments |
|---|---|---|
{contextify}

## Resources

All are `text/plain`, need the scope `observations:read`, and are as REST tells them in plain text. There are no subscriptions.

| template | what it is |
|---|---|
{resources}

`resources/list` lists the contexts of the projects that the key sees, newest first, 50 a page. In an address a project is
percent-encoded; slashes may be left as they are. What is not there, or is another team's, is an error with the code -32602, before
2026-07-28 -32002.

## The prompt

`{prompt}` takes a `topic`, and a `project` if it is not the client's. Its one message asks what is known of that, has the lines of
a search, and says how to go on.

## Instructions

Clients that show a model the instructions of servers show it these, about {instruction_tokens} tokens; the last line only with a
key that may write.

```text
{instructions}
```
"""
