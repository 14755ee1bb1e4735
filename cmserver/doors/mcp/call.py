"""Tools, the calls of them, and the JSON schema of their arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar, cast

import msgspec

from cmserver.access import verb
from cmserver.base.http.wire import convert

T = TypeVar("T", bound=msgspec.Struct)
Arguments = Mapping[str, object]
Schema = dict[str, object]

_SCHEMA_KEYS = ("type", "enum", "items", "anyOf", "minimum", "maximum", "default", "additionalProperties")
"""What helps a model to call rightly. Lengths and formats are checked when a call comes; the error then names the problem."""


class Call(verb.VerbCall, frozen=True, kw_only=True):
    """One request: who asks, as for REST, the tools of this server, and the project that the client says it works in."""

    tools: Sequence[Tool]
    project: str | None


class ToolHandler(msgspec.Struct, frozen=True):
    """The wire Struct of a tool's arguments, which REST reads too, and what runs with them. Returns text; raises our errors."""

    struct: type[msgspec.Struct]
    run: Callable[[Call, Arguments], Awaitable[str]]


class Tool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One tool of the server.

    `shown_fields` are the arguments that a model is told of, each with a short description; the Struct's other fields are accepted
    too. `project_field` names the project: the client's own when it is left out, unless a field of `project_alternatives` is there.
    """

    name: str
    title: str
    description: str
    handler: ToolHandler
    shown_fields: Mapping[str, str]
    scope: str
    writes: bool = False
    project_field: str | None = None
    project_alternatives: tuple[str, ...] = ()


def handle(struct: type[T], verb: Callable[[Call, T], Awaitable[str]]) -> ToolHandler:
    """A handler that converts the arguments; Invalid, with the field's path, for wrong values."""

    async def run(call: Call, arguments: Arguments) -> str:
        return await verb(call, convert(dict(arguments), struct))

    return ToolHandler(struct, run)


def arguments_schema(struct: type[msgspec.Struct], shown_fields: Mapping[str, str]) -> Schema:
    """The JSON schema of an object with these fields of the Struct, by their JSON names. Short: each session pays for each word."""
    (_,), components = msgspec.json.schema_components([struct], schema_hook=_any_schema)
    full = cast("Schema", components[struct.__name__])
    fields = cast("dict[str, Schema]", full["properties"])
    required = [name for name in cast("list[str]", full.get("required", [])) if name in shown_fields]
    properties = {
        name: {**_shorten(fields[name]), **({"description": text} if text else {})} for name, text in shown_fields.items()
    }
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _any_schema(_type: type) -> Schema:
    """The schema of an argument that takes any JSON: an object, as some models' APIs refuse tools with an untyped argument."""
    return {"type": "object"}


def _shorten(full: Schema) -> Schema:
    """Only the keys that a model needs, and without null, which means the same as leaving the field out."""
    short = {
        name: value for name, value in full.items() if name in _SCHEMA_KEYS and not (name == "default" and value in (None, [], {}))
    }
    if "items" in short:
        short["items"] = _shorten(cast("Schema", short["items"]))
    if "anyOf" not in short:
        return {"type": "string", **short} if "enum" in short else short
    variants = [_shorten(variant) for variant in cast("list[Schema]", short.pop("anyOf")) if variant != {"type": "null"}]
    if len(variants) == 1:
        return {**variants[0], **short}
    if all("type" in variant for variant in variants) and not any("items" in variant for variant in variants):
        return {"anyOf": [{"type": variant["type"]} for variant in variants], **short}  # some clients drop a list of types
    return {"anyOf": variants, **short}
