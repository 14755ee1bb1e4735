#!/usr/bin/env bash
# A tool of MCP's server in Python whose argument is a text or nothing refuses texts that are JSON, and takes the text "null" for
# nothing.
#
# Expected (MCP 2025-11-25, "Tools": arguments conform to the tool's inputSchema; JSON Schema 2020-12: any text is a string): what
# the schema admits reaches the function as it was sent, all the more a text where str is among the types.
# Guessed before the run: arguments of str, str | None and str | list[str] are left alone; of others, a list sent as a text is
# read.
# Seen (mcp 2.3.0, pydantic 2.14.4): only of str itself. For str | None, the text ["a"] or {"a": 1} is refused as no valid string,
# and the text null arrives as None, without an error. For str | list[str], ["a"] arrives as a list, and null is refused. For Any
# all three are read. true, 12 and "x" with its quotes stay texts everywhere. In each of these cases the schema that the server
# itself gives admits the text. (Issue 3055 of the SDK has the refusals, not the null.)
# Why it matters: str | None is how one writes an optional argument. A tool that keeps notes, files or templates works until one
# of them is JSON; and one for which None means to leave or to clear does so when the text is null. Take str with a default of "".
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -qq --disable-pip-version-check --target "$work/lib" mcp==2.3.0 pydantic==2.14.4 jsonschema==4.26.0
PYTHONPATH=$work/lib python3 - <<'PYTHON'
import asyncio
import logging
import sys
from importlib.metadata import version
from typing import Any

import jsonschema
from mcp import Client
from mcp.server import MCPServer

KINDS = {"str": str, "str | None": str | None, "str | list[str]": str | list[str], "Any": Any}
TEXTS = ["a", "true", "12", '"x"', "null", '["a"]', '{"a": 1}']
SAME = {text: repr(text) for text in TEXTS}
REFUSED = "refused"
EXPECTED = {
    "str": SAME,
    "str | None": {**SAME, "null": "None", '["a"]': REFUSED, '{"a": 1}': REFUSED},
    "str | list[str]": {**SAME, "null": REFUSED, '["a"]': "['a']", '{"a": 1}': REFUSED},
    "Any": {**SAME, "null": "None", '["a"]': "['a']", '{"a": 1}': "{'a': 1}"},
}
server = MCPServer("types")
logging.getLogger("mcp").setLevel(logging.ERROR)


def offer(name, kind):
    """A tool that says what reached it as a text of this type."""

    def keep(text) -> str:
        return repr(text)

    keep.__annotations__["text"] = kind
    server.tool(name=name)(keep)


async def main():
    seen, admitted = {}, True
    async with Client(server) as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        for number, kind in enumerate(KINDS):
            seen[kind] = {}
            for text in TEXTS:
                arguments = {"text": text}
                admitted &= jsonschema.Draft202012Validator(schemas[f"keep_{number}"]).is_valid(arguments)
                result = await client.call_tool(f"keep_{number}", arguments)
                seen[kind][text] = REFUSED if result.is_error else result.content[0].text
    return seen, admitted


for number, kind in enumerate(KINDS.values()):
    offer(f"keep_{number}", kind)
seen, admitted = asyncio.run(main())
print("mcp", version("mcp"), "with pydantic", version("pydantic"), "- all are admitted by the schemas:", admitted)
for kind, reached in seen.items():
    print(f"{kind}:", ", ".join(f"{text} is {value}" for text, value in reached.items()))
as_described = admitted and seen == EXPECTED
sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
