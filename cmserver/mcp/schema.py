"""What a model is told of a tool's arguments: each word of it is paid for in each session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

Schema = dict[str, object]

_TOLD = ("type", "enum", "items", "anyOf", "minimum", "maximum", "default", "additionalProperties")
"""What helps to ask rightly. Lengths and formats are looked at when a call comes, and then its error says what is wrong."""


def schema(takes: type[msgspec.Struct], shows: Mapping[str, str]) -> Schema:
    """The JSON schema of an object with these fields of a Struct, by the names that they have in JSON."""
    (_,), parts = msgspec.json.schema_components([takes], schema_hook=_any)
    whole = cast("Schema", parts[takes.__name__])
    fields = cast("dict[str, Schema]", whole["properties"])
    needed = [name for name in cast("list[str]", whole.get("required", [])) if name in shows]
    told = {name: {**_short(fields[name]), **({"description": text} if text else {})} for name, text in shows.items()}
    return {"type": "object", "properties": told, **({"required": needed} if needed else {})}


def _any(_type: type) -> Schema:
    """Of what may be any JSON. Some models' APIs refuse a whole list for one argument without a type, and an object suits most."""
    return {"type": "object"}


def _short(full: Schema) -> Schema:
    """Without what is not told, and without null, which is the same as leaving a field out."""
    short = {name: value for name, value in full.items() if name in _TOLD and not (name == "default" and value in (None, [], {}))}
    if "items" in short:
        short["items"] = _short(cast("Schema", short["items"]))
    if "anyOf" not in short:
        return {"type": "string", **short} if "enum" in short else short
    ways = [_short(way) for way in cast("list[Schema]", short.pop("anyOf")) if way != {"type": "null"}]
    if len(ways) == 1:
        return {**ways[0], **short}
    if all("type" in way for way in ways) and not any("items" in way for way in ways):
        return {"anyOf": [{"type": way["type"]} for way in ways], **short}  # some clients drop a list of types
    return {"anyOf": ways, **short}
