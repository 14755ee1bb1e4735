"""Every text that a request may carry in its body has a limit that its reader can bear."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import inspect

from cmserver.app import ROUTES
from cmserver.base.text import STORABLE_PATTERN, Key, Text
from cmserver.doors.mcp.tools import TOOLS

STORED = ("content", "narrative", "title", "subtitle", "kind", "type", "memorySessionId")
LISTS = ("facts[]", "concepts[]", "filesRead[]", "filesModified[]")
CLEANED = {*STORED, *LISTS}
"""What is stored: the room that takes it cleans it in threads, and cuts it to `field_max_chars`."""


def unbounded(type_: inspect.Type, path: str, seen: frozenset[type]) -> Iterator[str]:
    """The paths of texts without a greatest length."""
    match type_:
        case inspect.StrType(max_length=None, pattern=pattern) if pattern in (None, STORABLE_PATTERN):
            yield path
        case inspect.ListType(item_type=item):
            yield from unbounded(item, f"{path}[]", seen)
        case inspect.UnionType(types=types):
            for inner in types:
                yield from unbounded(inner, path, seen)
        case inspect.Metadata(type=inner):
            yield from unbounded(inner, path, seen)
        case inspect.StructType(cls=cls, fields=fields) if cls not in seen:
            for field in fields:
                yield from unbounded(field.type, f"{path}.{field.encode_name}", seen | {cls})
        case _:
            pass


def structs() -> Iterator[tuple[str, object]]:
    """What our own doors read of a body. Those of other systems are in tests/recall/search/test_query_limits.py."""
    for route in ROUTES:
        if route.body is not None and route.path.startswith("/v1/"):
            yield f"{route.method} {route.path}", route.body
    for tool in TOOLS:
        yield f"MCP {tool.name}", tool.handler.struct


def test_every_text_of_a_body_has_a_limit_or_is_cleaned():
    found = {
        f"{door} {path}"
        for door, struct in structs()
        for path in unbounded(inspect.type_info(struct), "", frozenset())
        if path.rpartition(".")[2] not in CLEANED
    }
    assert found == set()


class Inner(msgspec.Struct):
    words: list[Text]
    name: Key


class Outer(msgspec.Struct):
    inner: Inner | None
    note: str


def test_a_text_without_a_limit_is_found():
    assert [*unbounded(inspect.type_info(Outer), "", frozenset())] == [".inner.words[]", ".note"]
