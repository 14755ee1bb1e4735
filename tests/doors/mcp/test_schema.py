"""What a model is told of the tools: right, short, and the same for every client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from jsonschema import Draft202012Validator
from mcp_types import ListToolsResult

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.http.wire import convert
from cmserver.doors.mcp.aliases import list_tools
from cmserver.doors.mcp.call import Tool, arguments_schema
from cmserver.doors.mcp.server import HOW_TO_WRITE, INSTRUCTIONS, describe_tool
from cmserver.doors.mcp.tools import TOOLS
from cmserver.models.providers.embedding import local
from cmserver.observations.model import estimate_tokens
from tests.conftest import Cast, bound_to
from tests.doors.mcp.tools import MODES, Mode, connected
from tests.table import try_rows

MOST_TOKENS = 1_330
MOST_INSTRUCTIONS_BYTES = 2_048

each = pytest.mark.parametrize("tool", TOOLS, ids=[tool.name for tool in TOOLS])


def listed() -> str:
    """What a client gets to list, as JSON."""
    return ListToolsResult(tools=[describe_tool(tool) for tool in TOOLS]).model_dump_json(by_alias=True, exclude_none=True)


def fields(tool: Tool) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", arguments_schema(tool.handler.struct, tool.shown_fields)["properties"])


# ---- what it costs


def test_the_whole_list_is_short():
    assert estimate_tokens(listed()) < MOST_TOKENS


@pytest.mark.skipif(not local.is_installed(), reason="there is no wheel of wordllama for this machine")
def test_a_tokenizer_thinks_so_too():
    """That of the embedder local, which is one of Llama's: what English and JSON come to for one model, they do for another."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - only where it is installed

    (folder,) = cast("ModuleSpec", find_spec("wordllama")).submodule_search_locations or [""]
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_truncation()

    assert len(tokenizer.encode(listed(), add_special_tokens=False).ids) < MOST_TOKENS


def test_the_instructions_are_short():
    assert len((INSTRUCTIONS + HOW_TO_WRITE).encode()) < MOST_INSTRUCTIONS_BYTES
    assert all(name in INSTRUCTIONS for name in ("observation_search", "observation_timeline", "observation_get"))


@pytest.mark.parametrize("mode", MODES)
async def test_every_client_is_told_the_same(app: AsgiFrame, cast: Cast, mode: Mode):
    async with connected(app, cast.alice, mode=mode) as client:
        tools = await client.list_tools()
        instructions = client.instructions

    assert [tool.model_dump(exclude_none=True) for tool in tools.tools] == [
        describe_tool(tool).model_dump(exclude_none=True) for tool in TOOLS
    ]
    assert tools.next_cursor is None
    assert instructions == INSTRUCTIONS + HOW_TO_WRITE


async def test_a_key_that_may_not_write_is_not_told_how(app: AsgiFrame, cast: Cast, db: Db):
    reader = await bound_to(db, cast.alice, "github.com/acme/orders", scopes=["observations:read"])

    async with connected(app, reader) as client:
        assert client.instructions == INSTRUCTIONS


# ---- whether it is right


@each
def test_it_is_a_schema_of_an_object(tool: Tool):
    made = arguments_schema(tool.handler.struct, tool.shown_fields)

    Draft202012Validator.check_schema(made)
    assert made["type"] == "object"
    assert json.loads(json.dumps(made)) == made
    assert "$ref" not in json.dumps(made), "some clients do not follow references"


@try_rows("tool", list_tools("all"), ids=[tool.name for tool in list_tools("all")])
def test_every_argument_has_a_type(tool: Tool):
    """Some models' APIs refuse all tools of a list in which one argument has none, as an enum need not have one in JSON schema."""
    assert [name for name, told_of in fields(tool).items() if is_untyped(told_of)] == []


def is_untyped(told_of: Mapping[str, Any]) -> bool:
    if "anyOf" in told_of:
        return any(map(is_untyped, told_of["anyOf"]))
    return "type" not in told_of or ("items" in told_of and is_untyped(told_of["items"]))


@each
def test_what_is_shown_is_taken_and_what_is_needed_is_shown(tool: Tool):
    known = {field.encode_name: field for field in msgspec.structs.fields(tool.handler.struct)}

    assert set(tool.shown_fields) <= set(known)
    assert {name for name, field in known.items() if field.required} <= set(tool.shown_fields)
    assert arguments_schema(tool.handler.struct, tool.shown_fields).get("required", []) == [
        name for name in tool.shown_fields if known[name].required
    ]
    if tool.project_field:
        assert tool.project_field in known
    assert set(tool.project_alternatives) <= set(known)


@each
def test_its_limits_are_those_of_the_server(tool: Tool):
    """What the schema allows at its edges is taken, and what lies beyond them is not."""
    needed = {field.encode_name: "x" for field in msgspec.structs.fields(tool.handler.struct) if field.required}
    needed |= {"ids": [1]} if "ids" in needed else {}
    for name, told_of in fields(tool).items():
        for value in within(told_of):
            convert({**needed, name: value}, tool.handler.struct)
        for value in beyond(told_of):
            with pytest.raises(Invalid):
                convert({**needed, name: value}, tool.handler.struct)


def within(told_of: Mapping[str, Any]) -> Iterator[object]:
    yield from (told_of[edge] for edge in ("minimum", "maximum", "default") if edge in told_of)
    yield from told_of.get("enum", ())
    yield from ([one] for one in told_of.get("items", {}).get("enum", ()))


def beyond(told_of: Mapping[str, Any]) -> Iterator[object]:
    if "minimum" in told_of:
        yield told_of["minimum"] - 1
    if "maximum" in told_of:
        yield told_of["maximum"] + 1
    if "enum" in told_of:
        yield "wombat"
    if told_of.get("type", "object") != "object":  # what is best an object may be anything
        yield {"array": "x", "string": 1, "integer": "1", "boolean": "yes"}.get(str(told_of["type"]), object)


# ---- what a client may do without asking its user


@each
def test_what_only_reads_says_so(tool: Tool):
    hints = describe_tool(tool).annotations

    assert hints
    assert hints.read_only_hint is (tool.name not in {"observation_add", "observation_correct", "observation_record_event"})
    assert hints.open_world_hint is False
    assert hints.destructive_hint is (False if tool.writes else None), "nothing is ever lost"
    assert hints.idempotent_hint is (False if tool.writes else None), "what is said twice is there twice"
    assert tool.writes == tool.scope.endswith(":write")


@each
def test_it_has_a_name_that_every_client_takes_and_a_title_for_people(tool: Tool):
    assert tool.name.replace("_", "").isascii()
    assert tool.name.replace("_", "").isalpha()
    assert len(tool.name) <= 40, "clients put their own name for the server before it, and some take 64 in all"
    assert tool.title
    assert tool.title != tool.name
    assert tool.description.endswith(".")
