"""Reads loosely shaped JSON: a field that is missing or of another type counts as empty. Nothing here raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec

_MAX_NUMBER = 10**9


def record(value: object) -> dict[str, object]:
    """The value as a JSON object; a string that holds one is parsed, anything else is an empty object."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def array(value: object) -> list[object]:
    """The value as a JSON list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def texts(value: object) -> list[str]:
    """The strings of a JSON list."""
    return [item for item in array(value) if isinstance(item, str)]


def nested_texts(value: object) -> Iterator[str]:
    """All strings in a JSON value, without the names of fields."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            left += cast("dict[str, object]", item).values()
        else:
            left += array(item)


def number(value: object) -> int:
    """The value as a whole number, or 0; also 0 for numbers of a size that counts nothing."""
    return value if isinstance(value, int) and abs(value) < _MAX_NUMBER else 0


def field(source: dict[str, object], *names: str) -> str:
    """The first of the named fields that is a non-empty string, or an empty string."""
    for name in names:
        value = source.get(name)
        if isinstance(value, str) and value:
            return value
    return ""
