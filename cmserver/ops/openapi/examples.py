"""Values that a schema allows, for people who want to see one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from cmserver.ops.openapi.schemas import PREFIX, Schema, without_null

_ID = "0198a6f2-7d4e-7000-8000-000000000000"
EXAMPLES: dict[str, object] = {
    "projectId": "github.com/acme/orders",
    "project": "github.com/acme/orders",
    "canonicalId": "github.com/acme/orders",
    "eventType": "tool_use",
    "query": "retry",
    "content": "Orders are retried three times.",
    "payload": {"tool_name": "Edit"},
    "team": "blue",
    "user": "bob",
    "client": "claude-code",
    "role": "member",
    "name": "billing",
}
"""What a field or parameter of that name holds in the examples; others are made up from their schema."""


def example(schemas: Mapping[str, Schema], name: str, given: Schema) -> object:
    """Of an object what is required, and what EXAMPLES knows. `schemas` are those that references lead to."""
    schema = without_null(resolved(schemas, given))
    if name in EXAMPLES:
        return EXAMPLES[name]
    if "anyOf" in schema:
        return example(schemas, name, cast("list[Schema]", schema["anyOf"])[0])
    if schema.get("type") == "array":
        return [example(schemas, "", cast("Schema", schema["items"]))]
    if schema.get("type") == "object":
        required = cast("list[str]", schema.get("required", []))
        properties = cast("dict[str, Schema]", schema.get("properties", {}))
        kept = {inner: one for inner, one in properties.items() if inner in required or inner in EXAMPLES}
        if not kept and not name:  # a whole body: that it may be empty is no example
            kept = dict(list(properties.items())[:1])
        return {inner: example(schemas, inner, one) for inner, one in kept.items()}
    return _plain(name, schema)


def resolved(schemas: Mapping[str, Schema], schema: Schema) -> Schema:
    """What a reference leads to; anything else as it is."""
    return schemas[str(schema["$ref"]).removeprefix(PREFIX)] if "$ref" in schema else schema


def _plain(name: str, schema: Schema) -> object:
    if "enum" in schema:
        return cast("list[object]", schema["enum"])[0]
    if schema.get("type") in {"integer", "number"}:
        return schema.get("minimum", 1)
    if schema.get("type") == "boolean":
        return True
    return _ID if schema.get("format") == "uuid" or name == "id" else name or "text"
